"""Offsets in 32 bits on a GPU, in tensors that span up to 2^32 elements and own some megabytes.

    PYTHONPATH=. python benchmarks/gpu_far_addresses.py [--json FILE] [--subject NAME ...]

CUDA's virtual memory calls give the pages that hold elements memory of their own; all other addresses of a tensor, and those before
it, are one filler block of NaN, mapped again and again. Each defect of `tests/checks/far_defects.py` that concerns inputs is planted
and must fail; the kernels without a defect, and the subjects, must pass. Where CUDA maps no memory, one line says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from flashverify import parse_case
from flashverify.case.memory.far.cuda import cuda_copy, unavailable
from flashverify.case.memory.materialize import materialize
from flashverify.checks.addresses import check_addresses
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.execution import execute
from flashverify.subjects import load_subject
from tests.checks.far_defects import (
    DECODE,
    DEFECTS,
    DENSE,
    KERNELS,
    OF_ALLOCATIONS,
    PACKED,
    PAGE,
    PAGED,
    TOKENS,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

MIXED = parse_case(
    "fv1 batch=3 heads_q=3 heads_kv=3 seq_q=33 seq_k=40 dim_qk=64 dim_v=64 causal=bottom-right klen=40,20,37"
)


def judged(subject_text: str, case: Case, *questions: str) -> dict[str, Any]:
    """What the check says of one subject and case, and the memory and time that it took."""
    subject = load_subject(subject_text)
    problem, arena = materialize(case, subject.device())
    base = execute(subject, problem)
    torch.cuda.synchronize()
    free, started = torch.cuda.mem_get_info()[0], time.perf_counter()
    least = [free]

    def placed(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        made = cuda_copy(tensor, strides)
        least.append(torch.cuda.mem_get_info()[0])
        return made

    undefined = undefined_elements(problem, subject.contract)
    verdicts = list(check_addresses(subject, base, questions, undefined, placed))
    assert not arena.damage()
    return {
        "failures": [f"{v.error} {v.output}: {v.message}" for v in verdicts if v.status.value == "fail"],
        "remarks": [v.message for v in verdicts if v.status.value != "fail"],
        "mebibytes": (free - min(least)) >> 20,
        "seconds": round(time.perf_counter() - started, 2),
    }


def defects(folder: Path) -> Iterator[tuple[str, str, Case, str]]:
    """Name, subject, case and question of each planted defect."""
    for name, (question, case, *change) in DEFECTS.items():
        if name not in OF_ALLOCATIONS:
            place = folder / name.replace(" ", "_")
            place.mkdir()
            yield name, written(place, *change), case, question
    for name, change, source, function, case, question in (
        ("cumulative length times stride", TOKENS, KERNELS, "attend_packed", PACKED, "row"),
        ("page times stride", PAGE, DECODE, "paged_decode", PAGED, "page"),
    ):
        place = folder / name.replace(" ", "_")
        place.mkdir()
        yield name, written(place, *change, source=source, name=function), case, question


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the record goes")
    parser.add_argument("--subject", action="append", help="must pass [default: bundled]")
    options = parser.parse_args()
    reason = unavailable()
    if reason:
        print(reason)
        return 2
    record: dict[str, Any] = {"device": torch.cuda.get_device_name(), "planted": {}, "right": {}}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, subject, case, question in defects(Path(folder)):
            found = record["planted"][name] = judged(subject, case, question)
            wrong += not found["failures"]
            print(f"planted {name}: {'found' if found['failures'] else 'MISSED'}", found, flush=True)
    right = [
        (f"{KERNELS}:attend", DENSE),
        (f"{KERNELS}:attend_packed", PACKED),
        (f"{DECODE}:paged_decode", PAGED),
        *((subject, MIXED) for subject in options.subject or ["bundled"]),
    ]
    for subject, case in right:
        found = record["right"][subject] = judged(subject, case, "batch", "head", "row", "page", "all")
        wrong += bool(found["failures"] or found["remarks"])
        print(f"right {subject}: {'ALARM' if found['failures'] else 'passes'}", found, flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

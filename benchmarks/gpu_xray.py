"""How exactly the masks of kernels on a GPU are read: one-hot at 256 keys, bins and random signs at 65,536.

    python benchmarks/gpu_xray.py [--json FILE] [--lengths 256,65536] [--subject NAME]... [--dtype fp16]... [--no-mutant]

For each subject, dtype and length: entries read, entries as declared, the largest distance of a reading from a whole number (a guarantee:
at most 0.25), launches, and seconds of a second run, without compilation, where the problem is small. Last, the planted leak of
`flashverify.mutants.bank.diagonal_leak` at the same lengths, with tiles of 64 rows and 128 keys: what must be found.
Exit code 1: a mask of a subject is not as declared, or the leak was not found.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from flashverify.case.memory.materialize import materialize
from flashverify.mutants.bank.diagonal_leak import DIAGONAL_LEAK
from flashverify.mutants.build import build_mutant
from flashverify.subjects import Subject, load_subject
from flashverify.subjects.evidence import evidence_on
from flashverify.xray.cases import default_case
from flashverify.xray.difference import record_of
from flashverify.xray.measure import measure

if TYPE_CHECKING:
    from flashverify.case.case import Case

SUBJECTS = ("bundled", "sdpa-flash", "sdpa-cudnn", "sdpa-efficient")
TILE = (("block_m", 64), ("block_n", 128))
SMALL = 4096


def looked_at(subject: Subject, case: Case) -> dict[str, Any]:
    """The record of one x-ray, with the peak of its memory."""
    problem, _arena = materialize(case, subject.device())
    if case.seq_k <= SMALL:
        measure(subject, problem)  # compiles
    if subject.device() == "cuda":
        torch.cuda.reset_peak_memory_stats()
    record = record_of(measure(subject, problem))
    peak = torch.cuda.max_memory_allocated() if subject.device() == "cuda" else 0
    return dict(msgspec.to_builtins(record)) | {"peak_gib": round(peak / 2**30, 2)}


def line(found: dict[str, Any]) -> str:
    readings = found["readings"]
    cells, right = (sum(r[name] for r in readings) for name in ("cells", "right"))
    unread = sum(r["unread"] for r in readings)
    width = (
        "one-hot"
        if all(r["rows"] == r["keys"] == 1 for r in readings)
        else "bins of {} keys, {} rows".format(max(r["keys"] for r in readings), max(r["rows"] for r in readings))
    )
    return (
        f"{found['subject']:16} {found['case']}\n"
        f"    {width}: {right:,} of {cells:,} entries as declared ({unread:,} unread), at most "
        f"{max(r['distance'] for r in readings):.4f} from a whole number; LSE counts {found['lse_rows']:,} rows "
        f"({found['lse_unresolved']:,} unresolved); {len(found['differences'])} differences; "
        f"{found['launches']} launches, {found['seconds']:.2f} s, {found['peak_gib']} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where the record goes")
    parser.add_argument("--lengths", default="256,65536", help="rows and keys, with commas between them")
    parser.add_argument("--subject", action="append", help=f"repeatable; by default {', '.join(SUBJECTS)}")
    parser.add_argument("--dtype", action="append", help="repeatable; by default fp16 and bf16")
    parser.add_argument("--no-mutant", action="store_true", help="leave the planted leak out")
    options = parser.parse_args()
    records, failed = [], False
    lengths = [int(part) for part in options.lengths.split(",")]
    for length in lengths:
        for name in options.subject or SUBJECTS:
            subject = load_subject(name)
            for dtype in options.dtype or ("fp16", "bf16"):
                case = dataclasses.replace(default_case(subject.supports, length=length), dtype=dtype)
                reason = subject.supports.refusal(case)
                if reason is not None:
                    print(f"{name:16} {case}\n    not supported: {reason}")
                    continue
                found = looked_at(subject, case)
                print(line(found), flush=True)
                for each in found["differences"]:
                    print(f"    {each['message']}")
                failed |= bool(found["differences"])
                records.append(found)
    if not options.no_mutant:
        with tempfile.TemporaryDirectory() as folder:
            sys.path.insert(0, folder)
            subject = load_subject(build_mutant(DIAGONAL_LEAK, Path(folder)))
            for length in lengths:
                case = dataclasses.replace(default_case(subject.supports, length=length), launch=TILE)
                found = looked_at(subject, case)
                print(line(found), flush=True)
                for each in found["differences"]:
                    print(f"    {each['message']}")
                seen = {(each["output"], each["error"]) for each in found["differences"]}
                failed |= not {("o", "leaked"), ("o", "doubled")} <= seen or any(out in ("dv", "dk") for out, _ in seen)
                records.append(found)
    if options.json:
        device = evidence_on("cuda") if torch.cuda.is_available() else "cpu"
        options.json.write_text(
            json.dumps({"device": device, "torch": torch.__version__, "records": records}, indent=1) + "\n",
            encoding="utf-8",
        )
    sys.exit(int(failed))


if __name__ == "__main__":
    main()

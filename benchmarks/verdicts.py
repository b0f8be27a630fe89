"""Verdicts and ratios of stored cases, recorded to compare one state of the code with another, bit for bit.

    python benchmarks/verdicts.py record FILE [--cases 2000 | --like RECORD] [--plan run] [--workers 2]
    python benchmarks/verdicts.py compare BEFORE AFTER

`record` judges case texts of the published records, the corpus and the list of throughput in the interpreter, and writes one JSON
object a line. `compare` prints each difference in a status, an error class or a ratio, and exits 1 if there is one. Copy this file into an older
checkout to record that one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = {
    "bundled": (
        "reports/cpu/bundled.tsv.xz",
        "reports/cpu/family/bundled.tsv.xz",
        "reports/cpu/detection/clean-83.tsv.xz",
    ),
    "bundled-decode": ("reports/cpu/family/decode-and-chunked.tsv.xz",),
    "bundled-chunked": ("reports/cpu/family/decode-and-chunked.tsv.xz",),
    "torch-cpu": ("reports/cpu/torch-cpu.tsv.xz",),
}
SHARES = {"bundled": 0.7, "bundled-decode": 0.1, "bundled-chunked": 0.1, "torch-cpu": 0.1}
_WORKER: dict[str, Any] = {}


def stored_texts(subject: str) -> list[str]:
    """Every case text stored for a subject, once, in a fixed order."""
    texts: dict[str, None] = {}
    for name in RECORDS[subject]:
        with lzma.open(ROOT / name, "rt", encoding="ascii") as lines:
            texts.update(dict.fromkeys(line.split("\t")[0].strip() for line in lines if line.startswith("fv1")))
    if subject == "bundled":
        for path in sorted((ROOT / "flashverify").rglob("*.txt")):
            found = (
                line[line.index("fv1") :].strip() for line in path.read_text("ascii").splitlines() if "fv1 " in line
            )
            texts.update(dict.fromkeys(found))
    return list(texts)


def open_worker() -> None:
    """Set a worker process up as a campaign on a CPU does."""
    os.environ.update(OMP_NUM_THREADS="1", TRITON_INTERPRET="1")
    import torch

    from flashverify.campaign.toolkit import bundled

    torch.set_num_threads(1)
    stack = ExitStack()
    stack.enter_context(bundled.open("cpu", plain=False, numerics="ieee"))
    _WORKER.update(stack=stack, toolkit=bundled, subjects={})


def judge(job: tuple[str, str, str]) -> str:
    """One line of the record."""
    from flashverify.case.text import parse_case

    spec, plan, text = job
    subjects, toolkit = _WORKER["subjects"], _WORKER["toolkit"]
    if spec not in subjects:
        subjects[spec] = toolkit.load(spec)
    result = toolkit.judge(subjects[spec], parse_case(text), plan)
    verdicts = sorted(
        (v.check, v.output, v.mode, v.error, v.status.value, v.ratio, list(v.index)) for v in result.verdicts
    )
    stats = sorted(
        (s.output, s.mode, s.elements, s.exempt, s.uninformative, s.worst, s.median, s.signed) for s in result.stats
    )
    return json.dumps({"subject": spec, "case": text, "verdicts": verdicts, "stats": stats})


def record(options: argparse.Namespace) -> int:
    """Judge the cases and write them."""
    jobs = [(subject, options.plan, text) for subject, text in (_read(options.like) if options.like else ())]
    for subject, share in () if options.like else SHARES.items():
        texts = stored_texts(subject)
        count = min(round(options.cases * share), len(texts))
        jobs += [(subject, options.plan, text) for text in random.Random(0).sample(texts, count)]
    with (
        ProcessPoolExecutor(options.workers, get_context("spawn"), open_worker) as pool,
        gzip.open(options.file, "wt", encoding="ascii") as out,
    ):
        for number, line in enumerate(pool.map(judge, jobs, chunksize=8), 1):
            print(line, file=out)
            if number % 100 == 0:
                print(f"{number} of {len(jobs)}", file=sys.stderr, flush=True)
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print what differs."""
    before, after = (_read(path) for path in (options.before, options.after))
    different = 0
    for key, old in before.items():
        new = after.get(key)
        if new == old:
            continue
        different += 1
        print(*key)
        for kind in ("verdicts", "stats"):
            lines = [{json.dumps(entry) for entry in run[kind]} if run else set() for run in (old, new)]
            print(*(f"  - {line}" for line in sorted(lines[0] - lines[1])), sep="\n")
            print(*(f"  + {line}" for line in sorted(lines[1] - lines[0])), sep="\n")
    print(f"{len(before)} cases before, {len(after)} after, {different} different")
    return int(different > 0 or not before)


def _read(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    with gzip.open(path, "rt", encoding="ascii") as lines:
        entries = [json.loads(line) for line in lines]
    return {(entry["subject"], entry["case"]): entry for entry in entries}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--cases", type=int, default=2000)
    recording.add_argument("--like", type=Path, help="a record whose cases are judged")
    recording.add_argument("--plan", default="run", help="run, fuzz or only:CHECK")
    recording.add_argument("--workers", type=int, default=2)
    recording.set_defaults(run=record)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(run=compare)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    raise SystemExit(main())

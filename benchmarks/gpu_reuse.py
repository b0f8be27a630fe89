"""Reuse on a GPU: another stream, and a CUDA graph replayed over inputs and lengths that were overwritten in place.

    python benchmarks/gpu_reuse.py [--cases 50] [--seed 1] [--subject NAME ...] [--json FILE]

Every subject that runs here is put to the questions `stream`, `graph` and the others of the check `reuse` on drawn cases. A subject
that cannot be captured gives remarks. A failure ends the run with exit status 1.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from flashverify.campaign.toolkit import bundled
from flashverify.checks import Plan, judge_case
from flashverify.checks.reuse import SPEC as REUSE
from flashverify.subjects.registry import describe_subjects, load_subject

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject


def drawn(subject: Subject, count: int, seed: int) -> list[Case]:
    """`count` cases that the subject accepts, the same for the same seed."""
    found: list[Case] = []

    def keep(case: Case) -> None:
        if len(found) < count and subject.supports.refusal(case) is None:
            found.append(case)

    quiet = list(HealthCheck)
    while len(found) < count:
        draw = given(bundled.strategy(subject, "cuda"))(keep)
        limited = settings(
            max_examples=2 * count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=quiet
        )
        seeded(seed)(limited(draw))()
        seed += 1
    return found


def judged(name: str, count: int, seed: int) -> dict[str, Any]:
    """Counts of verdicts by question for one subject, its failures and its remarks."""
    subject = load_subject(name)
    counts: dict[str, collections.Counter[str]] = {question: collections.Counter() for question in REUSE.question_names}
    failures, remarks = [], collections.Counter[str]()
    for case in drawn(subject, count, seed):
        for question in REUSE.question_names:
            result = judge_case(subject, case, Plan(checks=("reuse",), questions={"reuse": (question,)}, calls=3))
            counts[question].update(v.status.value for v in result.verdicts)
            failures += [
                {"case": str(case), "error": v.error, "output": v.output, "message": v.message} for v in result.failures
            ]
            remarks.update(result.warnings)
    return {"verdicts": {q: dict(c) for q, c in counts.items()}, "failures": failures, "remarks": dict(remarks)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--subject", action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_reuse: there is no NVIDIA GPU here", file=sys.stderr)
        return 2
    names = options.subject or [name for name, _, available, _ in describe_subjects() if available]
    names = [name for name in names if load_subject(name).device() == "cuda"]
    rows = {}
    for name in names:
        rows[name] = judged(name, options.cases, options.seed)
        print(f"{name}: {rows[name]['verdicts']}", flush=True)
        for remark, times in rows[name]["remarks"].items():
            print(f"  remark, {times} times: {remark}")
        for failure in rows[name]["failures"][:5]:
            print(f"  FAIL {failure['error']} {failure['message']}\n       {failure['case']}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(any(row["failures"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())

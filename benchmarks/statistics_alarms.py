"""False alarms of the check `statistics`: right subjects on drawn cases that it applies to.

    TRITON_INTERPRET=1 python benchmarks/statistics_alarms.py [--subject NAME]... [--cases 4000] [--seed 0] [--jobs 1]

Draws `--cases` cases a subject, judges those that the check applies to by `accuracy`, `nonfinite` and `statistics`, and prints for each
subject how many were drawn, how many the check asked, and what it blamed. Exit code 1 where it blamed one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("TRITON_INTERPRET", "1")

SUBJECTS = ("bundled", "bundled-chunked", "torch-cpu")
CHECKS = ("accuracy", "nonfinite", "statistics")
_PART = 250


def judged(name: str, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Statuses of the check over `count` drawn cases, and the cases that it blamed."""
    from flashverify import corrected_interpreter
    from flashverify.campaign.toolkit import bundled as toolkit
    from flashverify.campaign.worker.search import draw
    from flashverify.checks import Plan, judge_case
    from flashverify.checks.statistics import SPEC
    from flashverify.subjects import load_subject

    subject = load_subject(name)
    counts: Counter[str] = Counter()
    blamed = []
    with corrected_interpreter():
        for case in draw(toolkit.strategy(subject, "cpu"), count, seed):
            counts["drawn"] += 1
            if SPEC.applies(subject, case):
                for verdict in judge_case(subject, case, Plan(checks=CHECKS)).verdicts:
                    if verdict.check == SPEC.name:
                        counts[verdict.status.value] += 1
                        blamed += [f"{verdict.error} {verdict.output}: {case}"] * (verdict.status.value == "fail")
    return counts, blamed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", action="append", default=[], metavar="NAME")
    parser.add_argument("--cases", type=int, default=4000, help="drawn for each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    alarms = 0
    with ProcessPoolExecutor(options.jobs) as processes:
        for name in options.subject or SUBJECTS:
            parts = range(max(options.cases // _PART, 1))
            runs = [processes.submit(judged, name, min(_PART, options.cases), 1000 * options.seed + n) for n in parts]
            total: Counter[str] = Counter()
            for counts, blamed in (run.result() for run in runs):
                total += counts
                alarms += len(blamed)
                print(*blamed, sep="\n", end="\n" * bool(blamed))
            print(
                f"{name}: {total['drawn']} drawn, {total['pass'] + total['fail']} asked, {total['fail']} blamed",
                flush=True,
            )
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())

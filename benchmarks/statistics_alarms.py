"""False alarms of the check `statistics`: right subjects on drawn cases that it applies to.

    python benchmarks/statistics_alarms.py [--subject NAME]... [--cases 4000] [--seed 0] [--jobs 1] [--device interpreter|cuda] [--seeds 1]
                                           [--dtypes fp16,bf16,fp32] [--minutes M]

Draws `--cases` cases a subject, gives each `--seeds` seeds of the values that the check asks, regime by regime, judges those that it
applies to by `accuracy`, `nonfinite` and `statistics`, and prints for each subject how many were drawn, how many the check asked, and what it blamed. Exit code 1 where it
blamed one.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

SUBJECTS = ("bundled", "bundled-chunked", "torch-cpu")
CHECKS = ("accuracy", "nonfinite", "statistics")
REGIMES = ("normal", "v-positive", "outlier", "negative", "logits-1e2", "few-keys")
_PART = 50


def asked(subject: Subject, device: str, dtypes: tuple[str, ...], count: int, seed: int, seeds: int) -> Iterator[Case]:
    """`count` drawn cases of the dtypes, each with several seeds of values that the check asks; those that it applies to."""
    from flashverify.campaign.toolkit import bundled as toolkit
    from flashverify.campaign.worker.search import draw
    from flashverify.checks.statistics import SPEC

    for number, case in enumerate(draw(toolkit.strategy(subject, device), count, seed)):
        for more in range(seeds if case.dtype in dtypes else 0):
            regime = REGIMES[(number + more) % len(REGIMES)]
            values = dataclasses.replace(case.values, regime=regime, seed=case.values.seed + more)
            changed = dataclasses.replace(case, values=values)
            if SPEC.applies(subject, changed):
                yield changed


def judged(
    name: str, device: str, dtypes: tuple[str, ...], count: int, seed: int, seeds: int, until: float
) -> tuple[Counter[str], list[str]]:
    """Statuses of the check over `count` drawn cases, and the cases that it blamed; none is begun after `until`."""
    from flashverify import corrected_interpreter
    from flashverify.checks import Plan, judge_case
    from flashverify.checks.statistics import SPEC
    from flashverify.subjects import load_subject

    subject = load_subject(name)
    counts: Counter[str] = Counter()
    blamed = []
    if time.time() > until:
        return counts, blamed
    counts["drawn"] = count
    with corrected_interpreter() if device == "cpu" else nullcontext():
        for case in asked(subject, device, dtypes, count, seed, seeds):
            if time.time() > until:
                break
            for verdict in judge_case(subject, case, Plan(checks=CHECKS)).verdicts:
                counts["other"] += verdict.check != SPEC.name and verdict.status.value == "fail"
                if verdict.check == SPEC.name:
                    counts[verdict.status.value] += 1
                    blamed += [f"{verdict.error} {verdict.output}: {case}\n  {verdict.message}"] * (
                        verdict.status.value == "fail"
                    )
    return counts, blamed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", action="append", default=[], metavar="NAME")
    parser.add_argument("--cases", type=int, default=4000, help="drawn for each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", choices=("interpreter", "cuda"), default="interpreter")
    parser.add_argument("--seeds", type=int, default=1, help="of the values of each case")
    parser.add_argument("--dtypes", default="fp16,bf16,fp32")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no case is begun")
    options = parser.parse_args()
    device = "cuda" if options.device == "cuda" else "cpu"
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    until, dtypes = time.time() + 60 * options.minutes, tuple(options.dtypes.split(","))
    alarms = 0
    with ProcessPoolExecutor(options.jobs) as processes:
        for name in options.subject or SUBJECTS:
            parts = range(max(options.cases // _PART, 1))
            each = (name, device, dtypes, min(_PART, options.cases))
            runs = [processes.submit(judged, *each, 1000 * options.seed + n, options.seeds, until) for n in parts]
            total: Counter[str] = Counter()
            for counts, blamed in (run.result() for run in runs):
                total += counts
                alarms += len(blamed)
                print(*blamed, sep="\n", end="\n" * bool(blamed))
            print(
                f"{name}: {total['drawn']} drawn, {total['pass'] + total['fail']} asked, {total['fail']} blamed, "
                f"{total['other']} failures of other checks",
                flush=True,
            )
    return int(alarms > 0)


if __name__ == "__main__":
    sys.exit(main())

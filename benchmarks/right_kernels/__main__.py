"""False alarms over right kernels in odd conventions.

    PYTHONPATH=benchmarks python -m right_kernels [--cases 300] [--seed 0] [--only NAME ...] [--checks accuracy,nonfinite,...]

Each kernel is put to drawn cases of its declaration. A failure or a warning is a false alarm: it is printed with its case, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import torch

from flashverify.campaign.worker.search import draw
from flashverify.case.space.strategies import cases
from flashverify.case.text import format_case
from flashverify.checks import Plan, judge_case
from flashverify.judge.verdict import Status, from_hex
from right_kernels.kernels import KERNELS

_CHECKS = "accuracy,nonfinite,padding,memory,determinism,relations,reuse"


def main() -> int:
    """Judge and print a line for every kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(KERNELS), choices=list(KERNELS), metavar="NAME")
    parser.add_argument("--checks", default=_CHECKS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    alarms = 0
    for name in options.only:
        kernel, found, worst = KERNELS[name], Counter[str](), Counter[str]()
        drawn = draw(cases(kernel.supports), options.cases, options.seed)
        for case in drawn:
            result = judge_case(kernel, case, Plan(checks=tuple(options.checks.split(","))))
            for stats in result.stats:
                worst[stats.output] = max(worst[stats.output], from_hex(stats.worst) if stats.worst else 0.0)
            wrong = [v for v in result.verdicts if v.status in (Status.FAIL, Status.ERROR)]
            told = [f"{v.check}: {v.message}" for v in wrong] + list(result.warnings)
            for text in told[:1]:
                found["warning" if not wrong else wrong[0].check] += 1
                print(f"  {format_case(case)}\n    {text}", flush=True)
        alarms += sum(found.values())
        ratios = " ".join(f"{output} {ratio:.2f}" for output, ratio in sorted(worst.items()))
        print(
            f"{name}: {len(drawn)} cases, {sum(found.values())} alarms {dict(found) or ''} worst {ratios}", flush=True
        )
    print(f"{len(options.only)} kernels, {alarms} alarms")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())

"""Ring attention on GPUs: drawn cases of `bundled-ring` by accuracy, at one number of ranks.

    CUDA_VISIBLE_DEVICES=0 python benchmarks/gpu_ring.py --ranks 2 --cases 100     several ranks on one GPU, through gloo and host memory
    python benchmarks/gpu_ring.py --ranks 2 --cases 100                            a GPU a rank where there are as many, through NCCL

Most of the first minute goes into compiling: `--kinds 4` compiles less. It prints the backend, how far it is, the cases that fail, and the largest ratio of each output and dtype. The exit code is 1 where a case fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time

from flashverify.campaign.worker.search import draw
from flashverify.case.space.profiles import profile_of
from flashverify.case.space.strategies import all_kinds, cases
from flashverify.case.text import format_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects.ring import pool
from flashverify.subjects.ring.subject import BUNDLED_RING

_PROGRESS = 5.0
"""Seconds between two lines that say how far it is: compiled kernels of a new kind take most of a cold start."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, choices=(2, 4, 8), default=2)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=pool.SECONDS, help="for a pass of all ranks")
    parser.add_argument("--kinds", type=int, help="draw from so many kinds of cases, each of which is compiled once")
    arguments = parser.parse_args()
    pool.SECONDS = arguments.seconds
    device = BUNDLED_RING.device()
    print(
        f"{BUNDLED_RING.evidence()}, {arguments.ranks} ranks, {pool.backend_of(arguments.ranks, device == 'cpu')}",
        flush=True,
    )
    profile = profile_of(device)
    kinds = all_kinds(BUNDLED_RING.supports, profile)[: arguments.kinds] if arguments.kinds else ()
    drawn = draw(cases(BUNDLED_RING.supports, profile=profile, kinds=kinds), arguments.cases, arguments.seed)
    worst: dict[str, float] = {}
    failed, start = 0, time.monotonic()
    said = start
    for n, case in enumerate(drawn):
        if time.monotonic() > said + _PROGRESS:
            said = time.monotonic()
            print(f"{n} of {len(drawn)} cases after {said - start:.0f} s", flush=True)
        launched = dataclasses.replace(case, launch=(("ranks", arguments.ranks), ("sharding", n % 3)))
        result = judge_case(BUNDLED_RING, launched, Plan.only("accuracy", launched))
        if result.failures:
            failed += 1
            print(format_case(launched), result.failures[0].output, result.failures[0].message, flush=True)
        for stats in result.stats:
            key = f"{stats.output} {case.dtype}"
            worst[key] = max(worst.get(key, 0.0), float.fromhex(stats.worst))
    print(f"{len(drawn)} cases, {failed} fail, {time.monotonic() - start:.0f} s")
    print(", ".join(f"{name} {ratio:.3g}" for name, ratio in sorted(worst.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

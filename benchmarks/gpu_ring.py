"""Ring attention on GPUs: drawn cases of `bundled-ring` by accuracy, at one number of ranks.

    CUDA_VISIBLE_DEVICES=0 python benchmarks/gpu_ring.py --ranks 2 --cases 100     several ranks on one GPU, through gloo and host memory
    python benchmarks/gpu_ring.py --ranks 2 --cases 100                            a GPU a rank where there are as many, through NCCL

It prints the backend, the cases that fail, and the largest ratio of each output and dtype. The exit code is 1 where a case fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time

from flashverify.campaign.worker.search import draw
from flashverify.case.space.profiles import profile_of
from flashverify.case.space.strategies import cases
from flashverify.case.text import format_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects.ring import pool
from flashverify.subjects.ring.subject import BUNDLED_RING


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, choices=(2, 4, 8), default=2)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=pool.SECONDS, help="for a pass of all ranks")
    arguments = parser.parse_args()
    pool.SECONDS = arguments.seconds
    device = BUNDLED_RING.device()
    print(
        f"{BUNDLED_RING.evidence()}, {arguments.ranks} ranks, {pool.backend_of(arguments.ranks, device == 'cpu')}",
        flush=True,
    )
    drawn = draw(cases(BUNDLED_RING.supports, profile=profile_of(device)), arguments.cases, arguments.seed)
    worst: dict[str, float] = {}
    failed, start = 0, time.monotonic()
    for n, case in enumerate(drawn):
        if n in (1, 10):
            print(f"{n} of {len(drawn)} cases after {time.monotonic() - start:.0f} s", flush=True)
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

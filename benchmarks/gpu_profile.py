"""What one process does while it judges cases on a GPU whose kernels are compiled: cases a second, and the functions that take the time.

    python benchmarks/gpu_profile.py [--subject SPEC] [--kinds N] [--cases N] [--rows N]

The same cases are judged twice, by every check of a search. The first time compiles and loads; the second is profiled. Waiting for the GPU
counts where a value is read or the device is synchronised.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time

from flashverify.campaign.ahead import since
from flashverify.campaign.environment import resolve_device
from flashverify.campaign.toolkit import bundled
from flashverify.campaign.worker.search import draw


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled")
    parser.add_argument("--kinds", type=int, default=6)
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--rows", type=int, default=45, help="functions that are printed, by each of two orders")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    device = resolve_device("cuda")
    with bundled.open(device, plain=False):
        import torch

        torch.set_num_threads(1)
        subject = bundled.load(options.subject)
        drawn = draw(bundled.of_kinds(subject, range(options.kinds)), options.cases, options.seed)
        for case in drawn:
            bundled.judge(subject, case, "fuzz")
        torch.cuda.synchronize()
        for name in ("plain", "profiled"):
            before, begun, profile = bundled.spent(), time.perf_counter(), cProfile.Profile()
            if name == "profiled":
                profile.enable()
            for case in drawn:
                bundled.judge(subject, case, "fuzz")
            torch.cuda.synchronize()
            profile.disable()
            seconds, spent = time.perf_counter() - begun, since(before, bundled.spent())
            print(
                f"{name}: {len(drawn)} cases in {seconds:.2f} s, {len(drawn) / seconds:.1f}/s, oracle {spent.oracle / seconds:.0%}, "
                f"compiling {spent.compiling / seconds:.0%}"
            )
        for order in ("tottime", "cumulative"):
            pstats.Stats(profile).strip_dirs().sort_stats(order).print_stats(options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

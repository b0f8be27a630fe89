"""The time of block-sparse attention against the live share of its blocks, on a GPU: dead blocks cost nothing.

    python benchmarks/block_sparse_cost.py [--json FILE]

Forward and backward of the bundled kernels, fp16, 8,192 tokens, 16 heads of 128, blocks of 128 x 128 of which a random share is
live. `cost / share` is the time relative to the dense kernels with the same tiles, divided by the live share: 1 is proportional.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING

import torch
from curves_report.counting import live_blocks

from flashverify.bench.clock import clock_of, interleaved
from flashverify.bench.problems import problem_of
from flashverify.bench.records import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH, BLOCK, HEADS, DIM = 8192, 128, 16, 128
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)


def main() -> int:
    """Print a line a share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("block_sparse_cost: error: no NVIDIA GPU is available", file=sys.stderr)
        return 3
    import flashverify_kernels as kernels

    dense = Workload(
        batch=1,
        heads_q=HEADS,
        heads_kv=HEADS,
        seq_q=LENGTH,
        seq_k=LENGTH,
        dim=DIM,
        dtype="fp16",
        causal=False,
        direction="backward",
    )
    problem = problem_of(dense, "cuda")
    assert problem.do is not None
    calls: dict[str, Callable[[], object]] = {}
    shares: dict[float, float] = {}
    for share in SHARES:
        live = live_blocks(LENGTH // BLOCK, HEADS, share, "cuda")
        settings = kernels.Options(blocks=kernels.BlockMask.from_bool(live, BLOCK, BLOCK))
        made = kernels.forward(problem.q, problem.k, problem.v, settings)
        shares[share] = float(live.float().mean())
        inputs = (problem.q, problem.k, problem.v)
        calls[f"forward {share}"] = partial(kernels.forward, *inputs, settings)
        calls[f"backward {share}"] = partial(kernels.backward, problem.do, *inputs, made.o, made.lse2, settings)
    times = interleaved(calls, clock_of("cuda"), rounds=11, warmup=2)
    medians = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    rows = []
    for direction in ("forward", "backward"):
        whole = medians[f"{direction} 1.0"]
        for share in SHARES:
            time = medians[f"{direction} {share}"]
            cost = time / whole / shares[share]
            rows.append({"pass": direction, "live": shares[share], "ms": time, "cost_by_share": cost})
            print(f"{direction:8} live {shares[share]:.4f}  {time:8.4f} ms  cost / share {cost:.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

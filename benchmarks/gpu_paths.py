"""The three ways to the tiles of the bundled kernels, compared bit for bit on a Hopper GPU: pointers, descriptors, kernels for Hopper.

    python benchmarks/gpu_paths.py [--workers N]

Worker processes compile a key each and compute the same problems in all three ways: lengths that no tile divides, masks with fewer
keys than queries, grouped heads, both orders of axes. One line a problem; exit code 1 if any bit differs or a way was not taken.
"""

from __future__ import annotations

import argparse
import concurrent.futures as futures
import itertools
import multiprocessing
import sys
import time
from dataclasses import replace
from typing import Any

KEYS = tuple(itertools.product((64, 128), (False, True), ("float16", "bfloat16")))
"""Head dimension, causal or not, dtype: what is compiled anew."""
PROBLEMS: tuple[tuple[dict[str, Any], tuple[int, int], tuple[int, int], str], ...] = (
    ({"causal": "bottom-right"}, (1000, 1333), (4, 1), "bhsd"),
    ({"causal": "top-left"}, (2048, 2048), (2, 2), "bshd"),
    ({"causal": "bottom-right"}, (700, 333), (2, 1), "bshd"),
    ({"window": (None, 77)}, (520, 391), (2, 2), "bhsd"),
)
"""Mask of a key that is causal, queries and keys, query and kv heads, order of the axes."""
OUTPUTS = ("o", "lse2", "dq", "dk", "dv")


def outputs(key: tuple[int, bool, str], problem: Any, **way: bool) -> tuple[Any, ...]:
    """What the kernels compute in one way, and whether the Hopper kernels were asked."""
    import torch

    from flashverify_kernels import Configs, Options, backward, forward, launch_config

    d, causal, name = key
    mask, (sq, sk), (heads, kv_heads), layout = problem
    dtype = getattr(torch, name)
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(h: int, s: int) -> torch.Tensor:
        shape = (2, h, s, d) if layout == "bhsd" else (2, s, h, d)
        return torch.randn(shape, generator=generator, device="cuda", dtype=dtype)

    q, k, v, do = normal(heads, sq), normal(kv_heads, sk), normal(kv_heads, sk), normal(heads, sq)
    kind = "causal" if causal else "none"
    configs = {
        n: launch_config(n, d=d, dv=d, dtype=dtype, mask=kind, sq=sq, capability=(9, 0))
        for n in ("forward", "dq", "dkdv")
    }
    off = {"descriptors": False, "hopper": False}
    chosen = Configs(**{n: replace(config, **(off | way)) for n, config in configs.items()})
    options = Options(**(mask if causal else {}), layout=layout, config=chosen)
    found = forward(q, k, v, options)
    gradients = backward(do, q, k, v, found.o, found.lse2, options)
    return found.o, found.lse2, gradients.dq, gradients.dk, gradients.dv


def compared(key: tuple[int, bool, str], begun: float) -> list[bool]:
    """One key: every problem in all ways."""
    import torch

    from flashverify_kernels import hopper

    taken: list[str] = []
    takes = hopper.takes
    hopper.takes = lambda call, options, kind, x: takes(call, options, kind, x) and not taken.append(kind)  # type: ignore[func-returns-value]
    same = []
    for problem in PROBLEMS:
        taken.clear()
        ways = [outputs(key, problem), outputs(key, problem, descriptors=True), outputs(key, problem, hopper=True)]
        differ = {
            way: [n for n, x, y in zip(OUTPUTS, ways[0], other, strict=True) if not torch.equal(x, y)]
            for way, other in (("descriptors", ways[1]), ("hopper", ways[2]))
        }
        same.append(not any(differ.values()) and taken == ["forward", "dkdv"])
        words = "same bits" if same[-1] else f"DIFFER {differ}, taken by the kernels for Hopper: {taken}"
        print(f"{time.time() - begun:4.0f} s", *key, *problem, words, flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    begun = time.time()
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        same = [x for found in pool.map(compared, KEYS, itertools.repeat(begun)) for x in found]
    print(f"{len(same)} problems, {same.count(False)} differ, {time.time() - begun:.0f} s")
    return 1 if False in same else 0


if __name__ == "__main__":
    sys.exit(main())

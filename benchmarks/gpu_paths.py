"""The three ways to the tiles of the bundled kernels, compared bit for bit on a Hopper GPU: pointers, descriptors, kernels for Hopper.

    python benchmarks/gpu_paths.py [--workers N] [--masks KIND ...]

Worker processes compile a key each and compute the same problems in all three ways: lengths that no tile divides, masks with fewer
keys than queries, grouped heads, both orders of axes, windows from one key to more than there are, patterns of blocks, packed
sequences, and rows that see nothing. One line a problem; exit code 1 if any bit differs or a way was not taken.
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

Problem = tuple[dict[str, Any], tuple[int, int], tuple[int, int], str]
"""Mask, queries and keys, query and kv heads, order of the axes."""
_CAUSAL: tuple[Problem, ...] = (
    ({"causal": "bottom-right"}, (1000, 1333), (4, 1), "bhsd"),
    ({"causal": "top-left"}, (2048, 2048), (2, 2), "bshd"),
    ({"causal": "bottom-right"}, (700, 333), (2, 1), "bshd"),
    ({"window": (None, 77)}, (520, 391), (2, 2), "bhsd"),
    ({"causal": "top-left"}, (2048, 2048), (16, 4), "bhsd"),  # programs of the forward compute several tiles
)
_EVEN = ((300, 1, 0, 128, 65, 1030), (300, 1, 0, 128, 65, 1030))
_UNEVEN = ((300, 0, 77, 128, 5, 700, 64), (517, 40, 0, 30, 900, 64, 333))
_LONG = ((2048, 17, 1000), (2048, 17, 1000))
_MANY = (tuple(range(66)), tuple(range(65, -1, -1)))
PACKED: dict[str, tuple[tuple[dict[str, Any], Any, tuple[int, int], str], ...]] = {
    "": (({}, _EVEN, (4, 2), "bshd"), ({}, _UNEVEN, (2, 1), "bhsd"), ({}, _MANY, (4, 1), "bshd")),
    " causal": (
        ({"causal": "top-left"}, _EVEN, (4, 1), "bshd"),
        ({"causal": "bottom-right"}, _UNEVEN, (4, 2), "bshd"),
        ({"causal": "top-left"}, _UNEVEN, (2, 2), "bhsd"),
        ({"causal": "bottom-right"}, _MANY, (2, 1), "bshd"),
        ({"causal": "top-left"}, _LONG, (8, 2), "bshd"),
    ),
    " window": (
        ({"causal": "bottom-right", "window": (200, None)}, _UNEVEN, (4, 1), "bshd"),
        ({"window": (70, 33)}, _EVEN, (2, 1), "bhsd"),
        ({"window": (10, 0)}, _MANY, (2, 2), "bshd"),
        ({"causal": "top-left", "window": (511, None)}, _LONG, (8, 2), "bshd"),
    ),
    " left": (({"window": (100, None)}, _EVEN, (2, 1), "bshd"), ({"window": (31, None)}, _UNEVEN, (4, 2), "bhsd")),
}
"""Of packed sequences, by kind of mask: lengths of queries and of keys, some of which are 0."""
PROBLEMS: dict[str, tuple[Problem, ...]] = {
    "none": tuple(({}, *others) for _, *others in _CAUSAL),  # type: ignore[misc]
    "causal": _CAUSAL,
    "window": (
        ({"causal": "top-left", "window": (0, None)}, (640, 640), (2, 2), "bhsd"),
        ({"causal": "top-left", "window": (5, None)}, (1000, 1000), (4, 1), "bshd"),
        ({"causal": "top-left", "window": (63, None)}, (1024, 1024), (2, 1), "bhsd"),
        ({"causal": "bottom-right", "window": (128, None)}, (700, 1333), (2, 2), "bshd"),
        ({"causal": "bottom-right", "window": (77, None)}, (1000, 333), (4, 2), "bhsd"),  # the first rows see nothing
        ({"causal": "top-left", "window": (511, None)}, (2048, 2048), (8, 1), "bhsd"),
        ({"window": (60, 10)}, (900, 300), (2, 1), "bshd"),  # the last rows see nothing
        ({"window": (31, 33)}, (333, 1000), (3, 1), "bhsd"),
        ({"window": (64, 64)}, (1024, 1024), (2, 2), "bhsd"),
        ({"window": (300, 129)}, (1111, 1200), (4, 2), "bshd"),
        ({"window": (0, 400)}, (129, 65), (2, 1), "bhsd"),
        ({"window": (5000, 5000)}, (777, 1025), (2, 2), "bhsd"),
    ),
    "left": (
        ({"window": (0, None)}, (500, 500), (2, 1), "bhsd"),
        ({"window": (127, None)}, (1000, 777), (4, 2), "bshd"),
        ({"window": (128, None)}, (700, 400), (2, 2), "bhsd"),  # the last rows see nothing
        ({"window": (301, None)}, (1025, 1300), (3, 1), "bhsd"),
    ),
    "blocks": (
        ({"blocks": (128, 128, 0.5)}, (1000, 1333), (4, 1), "bhsd"),
        ({"blocks": (128, 128, 0.05)}, (2048, 2048), (2, 2), "bshd"),  # some rows and keys see nothing
        ({"blocks": (256, 384, 0.4)}, (700, 1333), (2, 1), "bhsd"),
        ({"blocks": (384, 128, 1.0)}, (1152, 333), (2, 2), "bshd"),
        ({"blocks": (128, 256, 0.0)}, (300, 300), (2, 2), "bhsd"),
        ({"blocks": (128, 128, 0.3)}, (2048, 2048), (16, 4), "bhsd"),
    ),
    "causal blocks": (
        ({"blocks": (128, 128, 0.5), "causal": "bottom-right"}, (1000, 1333), (4, 2), "bhsd"),
        ({"blocks": (256, 128, 0.3), "causal": "top-left"}, (2048, 2048), (2, 1), "bshd"),
        ({"blocks": (128, 128, 0.7), "causal": "bottom-right"}, (700, 333), (2, 2), "bhsd"),
    ),
    "window blocks": (
        ({"blocks": (128, 128, 0.6), "causal": "top-left", "window": (511, None)}, (2048, 2048), (4, 1), "bhsd"),
        ({"blocks": (256, 128, 0.5), "window": (300, 129)}, (1111, 1200), (4, 2), "bshd"),
        ({"blocks": (128, 384, 0.5), "window": (60, 10)}, (900, 300), (2, 1), "bhsd"),
    ),
    **{
        f"packed{name}": tuple(
            (mask | {"packed": lengths}, tuple(map(sum, lengths)), *others) for mask, lengths, *others in of
        )
        for name, of in PACKED.items()
    },
}
"""By kind of mask, which is compiled in; of a pattern, queries and keys per block and the share of live ones."""
TAKEN = {64: ["forward", "dkdv"], 128: ["forward", "dq", "dkdv"], 256: ["forward"]}
"""Kernels for Hopper GPUs by head dimension, of whole tensors."""
OUTPUTS = ("o", "lse2", "dq", "dk", "dv")


def outputs(key: tuple[int, str, str], problem: Problem, **way: bool) -> tuple[Any, ...]:
    """What the kernels compute in one way, in the tiles of dense problems."""
    import torch

    from flashverify_kernels import Configs, Options, backward, forward, launch_config

    d, _, name = key
    mask, (sq, sk), (heads, kv_heads), layout = problem
    dtype = getattr(torch, name)
    generator = torch.Generator("cuda").manual_seed(0)

    def normal(h: int, s: int) -> torch.Tensor:
        shape = (batch, h, s, d) if layout == "bhsd" else (batch, s, h, d)
        return torch.randn(shape, generator=generator, device="cuda", dtype=dtype)

    batch = 2
    if "packed" in mask:
        batch, mask = 1, mask | {"packed": packed(*mask["packed"])}
    if "blocks" in mask:
        mask = mask | {"blocks": pattern(*mask["blocks"], heads, sq, sk)}
    q, k, v, do = normal(heads, sq), normal(kv_heads, sk), normal(kv_heads, sk), normal(heads, sq)
    configs = {
        n: launch_config(n, d=d, dv=d, dtype=dtype, mask="none", sq=sq, capability=(9, 0))
        for n in ("forward", "dq", "dkdv")
    }
    off = {"descriptors": False, "hopper": False}
    chosen = Configs(**{n: replace(config, **(off | way)) for n, config in configs.items()})
    options = Options(**mask, layout=layout, config=chosen)
    found = forward(q, k, v, options)
    gradients = backward(do, q, k, v, found.o, found.lse2, options)
    return found.o, found.lse2, gradients.dq, gradients.dk, gradients.dv


def packed(of_q: tuple[int, ...], of_k: tuple[int, ...]) -> Any:
    """Sequences of these lengths."""
    import torch

    from flashverify_kernels import Packed

    cu_q, cu_k = (torch.tensor([0, *itertools.accumulate(x)], dtype=torch.int32, device="cuda") for x in (of_q, of_k))
    return Packed(cu_q, cu_k, max(of_q), max(of_k))


def taken_of(d: int, mask: dict[str, Any]) -> list[str]:
    """The kernels for Hopper GPUs that take a problem; a narrow forward takes no packed sequences."""
    return [kind for kind in TAKEN[d] if (d, kind, "packed" in mask) != (64, "forward", True)]


def pattern(rows: int, keys: int, share: float, heads: int, sq: int, sk: int) -> Any:
    """A pattern of `share` live blocks, one for each head, shared by the batches."""
    import torch

    from flashverify_kernels import BlockMask

    live = torch.rand(1, heads, -(-sq // rows), -(-sk // keys), generator=torch.Generator().manual_seed(1)) < share
    return BlockMask.from_bool(live.to("cuda"), rows, keys)


def compared(key: tuple[int, str, str], begun: float) -> list[bool]:
    """One key: every problem in all ways."""
    import torch

    from flashverify_kernels import hopper

    taken: list[str] = []
    takes = hopper.takes
    hopper.takes = lambda call, options, kind, x: takes(call, options, kind, x) and not taken.append(kind)  # type: ignore[func-returns-value]
    same = []
    for problem in PROBLEMS[key[1]]:
        taken.clear()
        ways = [outputs(key, problem), outputs(key, problem, descriptors=True), outputs(key, problem, hopper=True)]
        differ = {
            way: [n for n, x, y in zip(OUTPUTS, ways[0], other, strict=True) if not torch.equal(x, y)]
            for way, other in (("descriptors", ways[1]), ("hopper", ways[2]))
        }
        same.append(not any(differ.values()) and taken == taken_of(key[0], problem[0]))
        words = "same bits" if same[-1] else f"DIFFER {differ}, taken by the kernels for Hopper: {taken}"
        print(f"{time.time() - begun:4.0f} s", *key, *problem, words, flush=True)
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--masks", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    options = parser.parse_args()
    keys = itertools.product((256, 128, 64), options.masks, ("float16", "bfloat16"))  # what is compiled anew
    begun = time.time()
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        same = [x for found in pool.map(compared, keys, itertools.repeat(begun)) for x in found]
    print(f"{len(same)} problems, {same.count(False)} differ, {time.time() - begun:.0f} s")
    return 1 if False in same else 0


if __name__ == "__main__":
    sys.exit(main())

"""A small subject's worth of functions: two kernels, what they call, and the plain Python around them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

N = 16
LIMIT = 3
FACTOR = tl.constexpr(1)
HALF = tl.constexpr(0.5)  # which nothing here reads
MIDDLE: list[torch.Tensor] = []
"""What the first kernel made last."""


class Sizes(NamedTuple):
    rows: int
    scale: float
    name: str


@triton.jit
def helper(x, factor):
    moved = x * factor / FACTOR
    return moved + 0.0


@triton.jit
def first(x, out, rows, N: tl.constexpr):
    at = tl.arange(0, N)
    inside = at < rows
    values = helper(tl.load(x + at, mask=inside, other=0.0), 2.0)
    wide = values[:, None] + values[None, :]
    if rows > 100:
        values = values + 1.0
    tl.store(out + at, values + 0.0 * tl.sum(wide, 1), mask=inside)


@triton.jit
def second(x, out, rows, N: tl.constexpr):
    at = tl.arange(0, N)
    values = helper(tl.load(x + at, mask=at < rows, other=0.0), 3.0)
    tl.store(out + at, values, mask=at < rows)


def folder() -> str:
    return Path(__file__).name


def checked(x: torch.Tensor) -> None:
    if x.ndim > LIMIT:
        raise ValueError(x.ndim)


def launched(x: torch.Tensor) -> torch.Tensor:
    sizes, dtype, causal = Sizes(x.numel() - 1, 0.5, "rows"), x.dtype, True
    checked(x)
    folder()
    middle, out = torch.zeros_like(x), torch.zeros_like(x)
    first[(1,)](x, middle, sizes.rows, N=N)
    MIDDLE[:] = [middle]
    second[(1,)](middle, out, sizes.rows, N=N)
    return out.to(dtype) * sizes.scale if causal else out


def run() -> torch.Tensor:
    return launched(torch.ones(N))

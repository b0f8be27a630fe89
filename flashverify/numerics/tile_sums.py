"""What the sum over V may lose where an accumulator takes one tile after the other (docs/bounds.md, sections 7 and 14)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS
from flashverify.numerics.running_maximum import OWN, RunningMaximum, follows_order

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients

__all__ = ["accumulates_in_order", "growth", "running_sum", "sum_error"]


def accumulates_in_order(problem: BoundInputs) -> bool:
    """Whether the error of the accumulator follows from its own values: a declared order, fp32 inputs and accumulator, and no dropout."""
    dropped = problem.features is not None and problem.features.keep
    fp32 = not FORMATS[problem.dtype].narrow and problem.form.o_accum == "fp32"
    return follows_order(problem) and fp32 and not dropped


def running_sum(weights: Tensor, v: Tensor, walk: RunningMaximum) -> tuple[Tensor, Tensor]:
    """`weights @ v`, and the sum of the magnitudes that it had before each later tile in which the row sees a key.

    Args:
        weights: `[G, M, N]`.
        v: `[G, N, Dv]`.
        walk: Of the rows.

    Returns:
        Both `[G, M, Dv]`.
    """
    (first, *shares), (value, *values) = torch.split(weights, walk.block, -1), torch.split(v, walk.block, 1)
    total = first @ value
    passed = torch.zeros_like(total)
    for share, value, sees in zip(shares, values, torch.split(walk.seen, 1, -1)[1:], strict=True):
        passed.addcmul_(total.abs(), sees)
        total = torch.baddbmm(total, share, value)
    return total, passed


def growth(c: Coefficients, walk: RunningMaximum) -> float:
    """How much the errors of all tiles may enlarge an error that the accumulator has."""
    return math.exp(min(walk.seen.shape[-1] * c.tile_sum, 700.0))


def sum_error(
    c: Coefficients, chunk: Chunk, walk: RunningMaximum, *, P: Tensor, pv: Tensor, flushed: Tensor, apart: Tensor
) -> Tensor:
    """Error of the sum over V beside that of its weights, `[G, M, Dv]`.

    Args:
        c: The coefficients.
        chunk: The chunk.
        walk: Of its rows.
        P: Exact weights, `[G, M, N]`.
        pv: Largest `sum P |V|`, `[G, M, Dv]`.
        flushed: What underflow adds to the sum.
        apart: `[G, M, 1]` the largest sum of `|P_hat - P|` over keys, for normalised computed weights.
    """
    _, passed = running_sum(P, chunk.v, walk)
    largest = torch.maximum(chunk.top, -chunk.low).clamp(min=0.0)
    tiles = walk.seen.sum(-1, keepdim=True)
    passed = passed * (1 + OWN) + tiles * (apart * (1 + OWN) * largest + flushed)
    return growth(c, walk) * (passed * c.tile_sum + (pv + flushed) * c.tile_dot)

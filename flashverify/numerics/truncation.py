"""What the sums of a matrix unit that truncates lose in one direction (docs/bounds.md, section 22).

A product with a factor 0 loses nothing, and neither does a sum whose every value lies on a grid that the unit keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS
from flashverify.numerics.primitives import architecture_of

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients

__all__ = ["Truncation", "inexact_dots", "truncated_gradients", "truncated_row_sum", "truncated_sum", "truncation_of"]

# Fraction bits that every matrix unit keeps below the largest exponent of a step.
_KEPT = 2.0**23
# The unit of a vector without an element.
_NO_UNIT = 2.0**200
# A weight below it is 0 in fp32.
_ZERO = 2.0**-165
# A final weight below `zero / _LATE` that was not 0 in its tile was so before the maximum of its row, and what had been summed by then is less
# than _EARLY of the row for each key.
_LATE, _EARLY = 2.0**60, 2.0**-60


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Of the dots over keys and over rows.

    Attributes:
        per_term: What a product that is not 0 may cost, relative to the sum of magnitudes.
        zero: A weight or dS below it is 0 once it is cast.
        least: The smallest normal number: its exponent is that of a smaller operand where it is aligned, of 0 too.
        rows: Rows of a group that a sum over rows has.
    """

    per_term: float
    zero: float
    least: float
    rows: int

    def rate(self, live: Tensor, dim: int, most: float) -> Tensor:
        """The relative loss of sums of the terms that are `live`, 1 or 0, over a dimension; it is no larger than that of a full sum, `most`."""
        return (live.sum(dim, keepdim=True) * self.per_term).clamp_(max=50.0).expm1_().clamp_(max=most)


def truncation_of(dtype: str, architecture: str, rows: int) -> Truncation:
    """That of a form whose dots of `dtype`, fp16 or bf16, go through a matrix unit."""
    x = FORMATS[dtype]
    units = [unit for unit in architecture_of(architecture) if unit.block]
    per_term = max(2.0**-unit.fraction_bits + 2.0**-23 for unit in units)
    zero = max(x.min_subnormal, 2.0**-149) * 2.0**-30
    return Truncation(per_term=per_term, zero=zero, least=x.min_normal, rows=rows)


def inexact_dots(t: Truncation, x: Tensor, y: Tensor, size: Tensor) -> Tensor:
    """Which dots of rows of x and of y a matrix unit may round, 1 or 0, `[G, M, N]`.

    All products and sums of a dot are multiples of the product of two powers of two that divide its operands. Below 2^23 times that number
    every architecture keeps them.

    Args:
        t: What is lost.
        x: `[G, M, D]`.
        y: `[G, N, D]`.
        size: `[G, M, N]`, sums of the magnitudes as they are aligned.
    """
    units = _unit(x) * _unit(y).mT
    if x.shape[-1]:
        size = size + (x.abs().amax(-1, keepdim=True) + y.abs().amax(-1, keepdim=True).mT) * (2 * t.least)
    exact = (size <= units * (_KEPT * (1 - 2.0**-30))) & (units >= FORMATS["fp32"].min_normal)
    return (~exact).double()


def truncated_sum(c: Coefficients, t: Truncation, chunk: Chunk, weights: Tensor, sums: Tensor, inv: Tensor) -> Tensor:
    """What the sum over V loses, `[G, M, Dv]`.

    A weight may be larger before the maximum of its row is known. Then whatever was summed until its tile has a share of the row that is as small.

    Args:
        c: The coefficients.
        t: What is lost.
        chunk: The chunk.
        weights: The largest weights, final ones, `[G, M, N]`.
        sums: Largest `sum P |V|` with what underflow adds.
        inv: The largest 1 / l, `[G, M, 1]`.
    """
    largest = chunk.av.amax(-2, keepdim=True) * chunk.factor if chunk.av.shape[-2] else torch.zeros_like(sums)
    rate = t.rate(_live(t, chunk, weights), -1, c.dot_keys)
    return (sums + largest * (2 * t.least * inv)) * rate + chunk.n * (_EARLY * c.dot_keys) * largest


def truncated_row_sum(c: Coefficients, t: Truncation, chunk: Chunk, weights: Tensor) -> Tensor:
    """What the sum of the weights loses where a matrix unit adds them, relative, `[G, M, 1]`; the arguments are those of `truncated_sum`."""
    return t.rate(_live(t, chunk, weights), -1, c.row_sum) + chunk.n * (_EARLY * c.row_sum)


def _live(t: Truncation, chunk: Chunk, weights: Tensor) -> Tensor:
    """Weights that are not 0 once the row's maximum is near, 1 or 0."""
    return (weights > t.zero / _LATE).double() if chunk.kept is None else torch.ones_like(weights)


def truncated_gradients(
    c: Coefficients, t: Truncation, chunk: Chunk, *, ds: Tensor, P: Tensor, ado: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What the sums of dQ `[G, M, D]`, dK `[G, N, D]` and dV `[G, N, Dv]` lose, before the scale and the factor of dropout.

    Args:
        c: The coefficients.
        t: What is lost.
        chunk: The chunk.
        ds: Largest |dS|, before the scale, 0 where invisible, `[G, M, N]`.
        P: Largest P that dropout keeps, likewise.
        ado: |dO| as it is aligned, `[G, M, Dv]`.
    """
    cast, rows = c.ds_cast or 1.0, ds.shape[-2]
    weights = P - c.w  # what a flushed weight may be off by is no weight
    live_ds, live_p = (ds * max(cast, 1.0) > t.zero) & (weights > _ZERO), weights > t.zero
    if chunk.kept is not None:
        live_ds, live_p = ds > 0, P > 0
    in_q = t.rate(live_ds.double(), -1, c.dot_keys)
    in_k, in_v = (
        t.rate(x.double().mT, -1, c.dot_queries) if rows == t.rows else c.dot_queries for x in (live_ds, live_p)
    )
    least = t.least / cast
    return (
        _aligned(ds, chunk.ak, least) * in_q,
        _aligned(ds.mT, chunk.aq, least) * in_k,
        _aligned(P.mT, ado, t.least) * in_v,
    )


def _aligned(x: Tensor, y: Tensor, least: float) -> Tensor:
    """`x @ y`, and what products that are aligned with the exponent of the smallest normal number count as."""
    largest = y.amax(-2, keepdim=True) if y.shape[-2] else torch.zeros_like(y.sum(-2, keepdim=True))
    return torch.baddbmm(largest * (2 * least), x, y)


def _unit(x: Tensor) -> Tensor:
    """The largest power of two that divides every element of a vector of at most 24 significant bits, `[..., 1]` for `[..., D]`."""
    digits = (torch.frexp(x.abs()).mantissa * 2.0**24).to(torch.int64)
    unit = x.abs() / digits.clamp(min=1) * (digits & -digits)
    return torch.where(x == 0, _NO_UNIT, unit).amin(-1, keepdim=True)

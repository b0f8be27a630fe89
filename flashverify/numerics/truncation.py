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

__all__ = ["Truncation", "inexact_dots", "losses_of_gradients", "truncated_row_sum", "truncated_sum", "truncation_of"]

# Fraction bits that every matrix unit keeps below the largest exponent of a step.
_KEPT = 2.0**23
# The unit of a vector without an element.
_NO_UNIT = 2.0**200
# A final weight below `zero / _LATE` that was not 0 in its tile was so before the maximum of its row, and what had been summed by then is less
# than _EARLY of the row for each key.
_LATE, _EARLY = 2.0**60, 2.0**-60


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Of the dots over keys and over rows.

    Attributes:
        per_term: What a product that is not 0 may cost, relative to the sum of magnitudes.
        zero: A weight or dS below it is 0 once it is cast.
        least: What a smaller weight or dS that is not 0 counts as, because a subnormal operand is aligned with the exponent of the smallest normal number.
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


def inexact_dots(x: Tensor, y: Tensor, size: Tensor) -> Tensor:
    """Which dots of rows of x and of y a matrix unit may round, 1 or 0, `[G, M, N]`.

    All products and sums of a dot are multiples of the product of two powers of two that divide its operands. Below 2^23 times that number
    every architecture keeps them.

    Args:
        x: `[G, M, D]`.
        y: `[G, N, D]`.
        size: `[G, M, N]`, sums of the magnitudes as they are aligned.
    """
    units = _unit(x) * _unit(y).mT
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
    live = _live(t, chunk, weights)
    sums = sums + (live @ chunk.av) * (t.least * chunk.factor * inv)
    largest = torch.maximum(chunk.top, -chunk.low).clamp(min=0.0)
    return sums * t.rate(live, -1, c.dot_keys) + chunk.n * (_EARLY * c.dot_keys) * largest


def truncated_row_sum(c: Coefficients, t: Truncation, chunk: Chunk, weights: Tensor) -> Tensor:
    """What the sum of the weights loses where a matrix unit adds them, relative, `[G, M, 1]`; the arguments are those of `truncated_sum`."""
    return t.rate(_live(t, chunk, weights), -1, c.row_sum) + chunk.n * (_EARLY * c.row_sum)


def _live(t: Truncation, chunk: Chunk, weights: Tensor) -> Tensor:
    """Weights that are not 0 once the row's maximum is near, 1 or 0."""
    return (weights > t.zero / _LATE).double() if chunk.kept is None else torch.ones_like(weights)


def losses_of_gradients(
    c: Coefficients, t: Truncation, chunk: Chunk, *, ds: Tensor, P: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What dS and P of every pair lose in dQ, dK and dV, `[G, M, N]` each, before their other operand.

    Args:
        c: The coefficients.
        t: What is lost.
        chunk: The chunk.
        ds: Largest |dS|, before the scale, 0 where invisible.
        P: Largest P that dropout keeps, likewise.
    """
    whole = P.shape[-2] == t.rows
    cast = c.ds_cast or 1.0
    found = []
    for x, unit, dim, most in ((ds, cast, -1, c.dot_keys), (ds, cast, -2, c.dot_queries), (P, 1.0, -2, c.dot_queries)):
        live = x * max(unit, 1.0) > t.zero if chunk.kept is None else x > 0
        size = torch.where(live, x.clamp(min=t.least / unit), 0.0)
        found.append(size * (t.rate(live.double(), dim, most) if dim == -1 or whole else most))
    return found[0], found[1], found[2]


def _unit(x: Tensor) -> Tensor:
    """The largest power of two that divides every element of a vector of at most 24 significant bits, `[..., 1]` for `[..., D]`."""
    digits = (torch.frexp(x.abs()).mantissa * 2.0**24).to(torch.int64)
    unit = x.abs() / digits.clamp(min=1) * (digits & -digits)
    return torch.where(x == 0, _NO_UNIT, unit).amin(-1, keepdim=True)

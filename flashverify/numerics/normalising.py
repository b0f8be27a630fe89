"""The error of the LSE, and of one that stands for the row sum (docs/bounds.md, sections 6 and 7)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients

__all__ = ["LARGE", "exponent_of_lse", "lse_error"]

LARGE = 30.0
"""Above this, exp(theta) is replaced by the largest theta of the row: log sum P e^theta <= max (S - L + theta) + log n."""

_LN2 = math.log(2.0)


def lse_error(
    c: Coefficients,
    chunk: Chunk,
    inv: Tensor,
    log_sum: Tensor,
    log2_l: Tensor,
    L2: Tensor,
    m2: Tensor,
    row_sum: Tensor | float,
) -> tuple[Tensor, Tensor]:
    """Errors of the logarithm of the row sum, natural, and of the LSE, base 2, `[G, M, 1]`.

    Args:
        c: The coefficients.
        chunk: The chunk.
        inv: Largest 1 / l.
        log_sum: Error of the logarithm that the weights make.
        log2_l: Logarithm of the row sum.
        L2: |L| in base 2.
        m2: |m| in base 2.
        row_sum: Relative error of the row sum's additions.
    """
    relative = log_sum + row_sum + chunk.terms * inv * c.w
    if c.row_sum_rounded:
        relative = relative + (c.u_p + chunk.n * inv * c.eta_p) * (1 + 2 * c.u_p)
    # A logarithm that is taken in base 2 and converted costs 2u log2 l more, also where the sum with m cancels.
    lse = relative * (1 / _LN2) + (log2_l + log_sum).clamp(min=1.0) * c.lg2 + (L2 * c.base_fwd + m2 + 2 * log2_l) * c.u
    return relative, lse


def exponent_of_lse(c: Coefficients, L: Tensor, m: Tensor, log2_l: Tensor, log_sum: Tensor) -> Tensor:
    """Error of the exponent in `exp(m - lse)`, natural units, `[G, M, 1]`, for an LSE of the kernel's own m and l.

    The logarithm, the rounding of the LSE, its and m's conversions between bases, the subtraction, and the exponential. Where each split
    has an LSE of its own, at most `max(|S|, |m|) + log n` large, what grows with |S| and |m| is counted apart.

    Args:
        c: The coefficients.
        L: |L|, natural.
        m: |m|, natural.
        log2_l: Logarithm of the row sum.
        log_sum: Its error, natural.
    """
    size = 5 * log2_l * _LN2 if c.split and c.normalise == "lse" else 5 * L + m
    log = (log2_l + log_sum).clamp(min=1.0) * (c.lg2 * _LN2) + log2_l * (2 * c.u * _LN2)
    return (log + size * c.u + (log2_l * _LN2 + log_sum) * c.gap + c.eps) * (1 + 2.0**-17)

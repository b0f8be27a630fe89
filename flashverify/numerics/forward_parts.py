"""What one chunk of the forward's bounds is computed from, and what comes of it."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.numerics.running_maximum import RunningMaximum

__all__ = ["Errors", "Shared"]


@dataclass(slots=True, kw_only=True)
class Shared:
    """What B and E64 have in common in one chunk; rows are `[G, M, 1]`."""

    o: Tensor
    abs_o: Tensor
    o_square: Tensor
    o_twice: Tensor
    R: Tensor  # S - L, [G, M, N]
    P: Tensor  # exp(S - L)
    gap: Tensor  # m - S
    sink: Tensor | None  # sink - L
    row_sum: Tensor  # sum exp(S - m), and its logarithm in base 2
    log2_l: Tensor
    log_n: Tensor  # logarithm of the number of terms of a row sum
    L2: Tensor  # |L| / ln 2
    m2: Tensor  # |m| / ln 2
    nv: Tensor  # sum of |V| over visible keys, [G, M, Dv]
    nv_unit: Tensor  # nv of the codes of V where these are larger, of quantised operands
    n_most: Tensor  # sum over visible keys of the scale of V, or 1
    hull: Tensor  # largest |V - O| over the hull of V, [G, M, Dv]


@dataclass(slots=True, kw_only=True)
class Errors:
    """Bounds of one evaluation; rows are `[G, M, 1]`, of O `[G, M, Dv]`."""

    before: Tensor  # of O before the rounding of the output
    after: Tensor
    flushed: Tensor | None  # the part of it that comes from underflow, None of E64
    lse: Tensor  # base 2
    walk: RunningMaximum | None  # where the order of the tiles is declared
    log_l: Tensor  # of the logarithm of the row sum, natural
    inv: Tensor  # largest 1 / l

    def without_errors(self) -> "Errors":
        """The same of an evaluation in exact arithmetic."""
        return dataclasses.replace(self, after=torch.zeros_like(self.after), lse=torch.zeros_like(self.lse))

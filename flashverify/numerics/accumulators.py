"""Where an accumulator or a partial output of the forward may leave its format (docs/bounds.md, section 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS
from flashverify.numerics.known_absent import below

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients

__all__ = ["accumulator_overflow"]


def accumulator_overflow(problem: BoundInputs, c: Coefficients, chunk: Chunk, nv: Tensor) -> Tensor:
    """Elements of O, bool `[G, M, Dv]`.

    Args:
        problem: The problem.
        c: The coefficients.
        chunk: The chunk.
        nv: Sum of |V| over the visible keys, `[G, M, Dv]`.
    """
    # p <= 2^tau at every running maximum, so sum |V| bounds every accumulator; l Pup |V| alone misses the early ones of ascending maxima.
    largest, over = nv * 2.0**problem.form.rescale_threshold, None
    if not below(largest, c.acc_limit):
        over = largest >= c.acc_limit
    if c.u_partial:  # a partial output lies in the hull of V, up to the roundings of its weights, and is cast
        room = FORMATS[problem.form.partial_dtype].overflow / (1 + 2 * (c.u_p + c.dot_keys + c.row_sum + c.div))
        apart = torch.maximum(chunk.top, -chunk.low) >= room
        over = apart if over is None else over | apart
    return torch.zeros_like(chunk.empty) if over is None else over & chunk.live

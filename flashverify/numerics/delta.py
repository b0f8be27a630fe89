"""Errors of delta before its use: of rowsum(dO * O), or of sum P dP (docs/bounds.md, section 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients
    from flashverify.numerics.gradients import Gradient, State
    from flashverify.numerics.result import ForwardBounds
    from flashverify.numerics.starting import OffBy

__all__ = [
    "StoredDelta",
    "delta_of_output",
    "delta_of_weights",
    "error_of_o",
    "flushed_delta",
    "stored_delta",
    "weights_underflow",
]


def error_of_o(problem: BoundInputs, o: Tensor, forward: ForwardBounds | None, *, stored: bool) -> Tensor | None:
    """How far the O that delta is summed from may be from `o`, `[B, Hq, Sq, Dv]`; None where it is `o`, or where delta is no sum over O.

    Args:
        problem: The problem.
        o: The oracle's O, or the subject's own.
        forward: Bounds of the forward, where `o` is the oracle's.
        stored: `o` is the subject's own: O before its rounding lies within half a spacing of it.
    """
    source = problem.form.delta_from
    if source == "p":
        return None
    if not stored:
        assert forward is not None
        return forward.o_unrounded if source == "o_fp32" else forward.o.bound
    out = FORMATS[problem.form.out_dtype or problem.dtype]
    return o.double().abs() * out.u + out.eta if source == "o_fp32" and out.narrow else None


def delta_of_output(c: Coefficients, Dv: int, g: Gradient, s: State, B_o: OffBy | None) -> Tensor:
    """Error of rowsum(dO * O), `[G, M, 1]`; `B_o` is how far O may be off, or None."""
    delta = s.Adelta * ((Dv + 1) * c.u) + Dv * c.w
    if B_o is not None:
        delta = delta + (g.ado * B_o.size).sum(-1, keepdim=True) * (1 + (Dv + 1) * c.u)
    return delta + flushed_delta(c, g, s, B_o) if c.flush else delta


def flushed_delta(c: Coefficients, g: Gradient, s: State, B_o: OffBy | None) -> Tensor | float:
    """What rowsum(dO * O) loses where dO is flushed, or O, which may be subnormal where it is not known to be larger: `[G, M, 1]`, or 0.

    The state keeps it: `B_o` is the one that it was first asked with.
    """
    if not c.flush:
        return 0.0
    if s.flushed is not None:
        return s.flushed
    size = s.abs_o
    small = (size if B_o is None else size - B_o.size) < c.flush
    if B_o is None or B_o.exact is not None:
        some = size > 0  # where O is the very number
        small = small & (some if B_o is None or B_o.exact is None else ~B_o.exact | some)
    lost = torch.where(small, g.ado, 0.0).sum(-1, keepdim=True) * c.flush
    s.flushed = lost if g.small_do is None else lost + (g.small_do * size).sum(-1, keepdim=True)
    return s.flushed


def delta_of_weights(c: Coefficients, chunk: Chunk, g: Gradient, BP: Tensor, Pb: Tensor, E: Tensor) -> Tensor:
    """Error of sum P dP in any order, `[G, M, 1]`.

    A product is off by `B_P |dP| + Pb B_dP`, and at most n roundings of products and sums lie above it.

    Args:
        c: The coefficients.
        chunk: The chunk.
        g: Its gradient.
        BP: Error of P, `[G, M, N]`, 0 where invisible.
        Pb: Largest P, likewise.
        E: Error of dP, and of terms that are added to it.
    """
    size = g.dp.abs()
    roundings = c.u * (chunk.n + 1)
    roundings = roundings / (1 - roundings.clamp(max=0.5))
    error = (BP * size).add_(Pb * E).sum(-1, keepdim=True)
    return error + (Pb * (size + E)).sum(-1, keepdim=True) * roundings + chunk.n * c.w


def weights_underflow(c: Coefficients, chunk: Chunk, g: Gradient) -> Tensor:
    """What sum P dP loses to underflow and flushing with weights in [0, 1], `[G, M, 1]`."""
    flushed: Tensor | float = chunk.factor * (chunk.v.shape[-1] * c.w)
    if g.flushed_dp is not None:
        flushed = flushed + g.flushed_dp.amax(-1, keepdim=True)
    return chunk.n * (flushed + c.w) + c.w * chunk.mask(g.AdP).sum(-1, keepdim=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredDelta:
    """What a returned delta holds, its B and E64, and its trivial range, `[G, M, 1]`."""

    value: Tensor
    bound: Tensor
    own: Tensor
    trivial: Tensor


def stored_delta(
    problem: BoundInputs, c: Coefficients, c64: Coefficients, dlse: Tensor | None, delta: Tensor, B: Tensor, E: Tensor, trivial: Tensor
) -> StoredDelta:  # fmt: skip
    """Of a delta, its B and E64 and its trivial range, what is returned: dLSE, where it was subtracted, costs one more rounding."""
    if dlse is None or problem.form.stored_delta == "plain":
        return StoredDelta(value=delta, bound=B, own=E, trivial=trivial)
    stored = delta - dlse
    B, E = (x + (stored.abs() + x) * y.u + 2 * y.w for x, y in ((B, c), (E, c64)))
    return StoredDelta(value=stored, bound=B, own=E, trivial=trivial + dlse.abs() + 4 * c.w)

"""The largest magnitude that an output can have whatever the weights are, by which an element is uninformative (docs/bounds.md, section 0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.numerics.delta import flushed_delta, weights_underflow
from flashverify.numerics.flushing import flushed_operands

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.numerics.bound_inputs import BoundInputs
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.coefficients import Coefficients
    from flashverify.numerics.gradients import Gradient, State
    from flashverify.numerics.starting import OffBy

__all__ = ["TrivialRanges", "trivial_ranges"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrivialRanges:
    """Largest magnitudes: of delta `[G, M, 1]`, X `[G, M, N]`, dQ, dK and dV."""

    delta: Tensor
    X: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


def trivial_ranges(
    problem: BoundInputs,
    c: Coefficients,
    chunk: Chunk,
    g: Gradient,
    s: State,
    B_o: OffBy | None,
    underflow: Tensor | None,
) -> TrivialRanges:
    """The largest magnitudes of delta, X `[G, M, N]`, dQ, dK and dV with weights in [0, 1], and twice their errors from underflow (section 0).

    `|dO| max |V|` stands for delta and `|dO| |V|^T + |dO| max |V| + |dLSE|` for X; what is lost to underflow enters where the formulas of B have it.
    `B_o` is how far O may be off, or None; `underflow` the part of it that comes from underflow, None in the conditional mode.
    """
    # Three times the surplus over |scale|: what a flushed scale costs is underflow too.
    sc, Dv = abs(problem.scale), chunk.v.shape[-1]
    sc += 3 * (c.grad_scale - sc)
    scaled = chunk.factor
    flushed = flushed_delta(c, g, s, B_o) + Dv * c.w
    if c.delta_weights:
        flushed = flushed + weights_underflow(c, chunk, g)
    if underflow is not None:
        flushed = flushed + (g.ado * underflow).sum(-1, keepdim=True)
    delta = (
        torch.maximum(s.Adelta, (g.ado * chunk.av.amax(-2, keepdim=True)).sum(-1, keepdim=True) * scaled) + 2 * flushed
    )
    rows = delta + 2 * Dv * c.w * scaled
    if g.dlse is not None:
        rows = rows + g.dlse.abs()
    rows = rows + 2 * c.eta_dp if c.eta_dp else rows
    X = g.AdP + rows
    if g.flushed_dp is not None:
        X.add_(g.flushed_dp, alpha=2)
    X = chunk.mask(X)
    const = 2 * (c.eta_ds + c.w * sc)
    dq = (X @ chunk.ak).mul_(sc).add_(g.nk, alpha=const).add_(2 * c.const_q)
    dk = (X.mT @ chunk.aq).mul_(sc).add_(g.nq, alpha=const)
    dv = g.ndo * (1 + 2 * (c.eta_p + c.w))
    for prescaled, y, dim in ((c.prescaled_q, dq, -1), (c.prescaled_k, dk, -2)):
        if prescaled:
            y.add_(X.sum(dim).unsqueeze(-1), alpha=2 * c.prescale_bwd)
    for part, y, weights in zip(flushed_operands(c, chunk), (dq, dk), (X, X.mT), strict=True):
        if part is not None:
            y.add_(weights @ part, alpha=2)
    if g.small_do is not None:
        dv.add_(chunk.over_kept_rows(g.small_do), alpha=2)
    return TrivialRanges(delta=delta, X=X, dq=dq, dk=dk, dv=dv)

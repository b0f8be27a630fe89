"""The intervals that O and LSE must lie in whatever the weights are, with the roundings of docs/bounds.md, sections 3 to 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics import BoundInputs, Form
from flashverify.numerics.coefficients import LN2, OVERFLOW_FP32, Coefficients, coefficients
from flashverify.numerics.logits import logit_error, logit_overflow, sink_error

if TYPE_CHECKING:
    from flashverify.numerics.chunk import Chunk
    from flashverify.truth import Inputs

__all__ = ["hull", "lse_range"]

_ELEMENTS = 1 << 22
"""Pairs times channels that are held at once."""
_LARGE = 30.0

Limits = tuple[Tensor, Tensor, Tensor]


def _problem(inputs: Inputs, dtype: str, form: Form) -> tuple[BoundInputs, Coefficients]:
    problem = BoundInputs.of(inputs.q, inputs.k, inputs.v, dtype=dtype, form=form, **inputs.problem())
    return problem, coefficients(form, dtype, problem.shape, problem.scale, problem.features)


def hull(inputs: Inputs, dtype: str, form: Form) -> Limits:
    """Lowest and highest value of every element of O, `[B, Hq, Sq, Dv]` float64, and the elements about which nothing is said.

    Computed weights, however wrong, are positive and divided by their own sum: a point of the hull. What leads out of it are the
    roundings that the sum does not share (section 7): the cast of P, the dot with V, l, the division, the output. With v the largest
    visible `|V|`: `v (u_x + D(N) + row_sum + div) + (eta_x + w) sum |V| / l + u_out v + eta_out`, and l >= .9.
    """
    problem, c = _problem(inputs, dtype, form)
    out = FORMATS[form.out_dtype or dtype]
    lows, highs, frees = [], [], []
    for chunk in problem.chunks():
        low, high, size = _visible_hull(chunk)
        nv = chunk.over_kept_keys(chunk.av)
        drop = 0.0 if c.features is None else c.features.drop_cast
        cast = size * (c.u_p + c.u_partial + drop) + nv * ((c.eta_p + c.w) / 0.9) + 3 * c.w * chunk.factor * chunk.n
        error: Tensor | float = c.row_sum + c.div
        if c.split:
            largest = chunk.m.abs() + torch.log(chunk.terms.clamp(min=1.0))
            error = error + torch.expm1(((largest + 1) * c.split).clamp(max=_LARGE))
        if c.row_sum_rounded:
            error = error + c.u_p + chunk.n * (c.eta_p / 0.9)
        core = cast + (size * (1 + c.u_p) + cast) * c.dot_keys + c.eta_partial
        core = core + (size + core) * error
        core = core + (size + core) * c.u_out + c.eta_out
        over = (nv * 2.0**form.rescale_threshold >= OVERFLOW_FP32) | (size + core >= out.max)
        if c.u_partial:
            over = over | (size + core >= FORMATS[form.partial_dtype].max)
        free = over | chunk.empty | chunk.bad | logit_overflow(problem, chunk, form.prescale_fwd)
        lows.append(low - core)
        highs.append(high + core)
        frees.append(free.double())
    return problem.join(lows), problem.join(highs), problem.join(frees) > 0


def _visible_hull(chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
    """Lowest and highest visible V and the largest magnitude, `[G, M, Dv]`, times the dropout factor; 0 lies within under dropout or a sink."""
    M = chunk.n.shape[1]
    v, factor = chunk.v, chunk.factor
    if chunk.vis is None:
        low, high = (x.expand(-1, M, -1) for x in (v.amin(-2, keepdim=True), v.amax(-2, keepdim=True)))
    else:
        seen, parts = chunk.vis > 0, []
        step = max(1, _ELEMENTS // max(1, v.shape[0] * v.shape[1] * v.shape[2]))
        for start in range(0, M, step):
            rows = seen[:, start : start + step].unsqueeze(-1)
            wide = v.unsqueeze(1)
            least = torch.where(rows, wide, torch.inf).amin(-2)
            most = torch.where(rows, wide, -torch.inf).amax(-2)
            parts.append((least, most))
        low, high = (torch.cat(x, 1) for x in zip(*parts, strict=True))
        low, high = low.masked_fill(chunk.empty, 0.0), high.masked_fill(chunk.empty, 0.0)
    low, high = low * factor, high * factor
    if chunk.sink is not None or chunk.kept is not None:
        low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    return low, high, torch.maximum(low.abs(), high.abs())


def lse_range(inputs: Inputs, dtype: str, form: Form) -> Limits:
    """Lowest and highest LSE of every row, `[B, Hq, Sq]` float64, in the base of `form.lse_base`, and the rows about which nothing is said.

    `max_j (S_j - theta_j) <= log sum exp S <= max_j (S_j + theta_j) + log n` with theta the error of an exponent (sections 3 to 5), and
    the roundings of the row sum, the logarithm and the result (section 6).
    """
    problem, c = _problem(inputs, dtype, form)
    lows, highs, frees = [], [], []
    for chunk in problem.chunks():
        theta, rows, _ = logit_error(c, chunk, form.prescale_fwd, backward=False)
        log_n = torch.log(chunk.terms.clamp(min=1.0))
        log2_n = log_n / LN2
        common = c.theta_fwd + (
            log_n * (c.split + c.gap + c.row_sum) + c.lg2 * LN2 * log2_n.clamp(min=1.0) if c.split else 0.0
        )
        gap = chunk.m - chunk.S
        theta.add_(gap, alpha=c.gap * (2 if c.split else 1)).add_(rows + common)
        if c.split:
            theta.add_(torch.maximum(chunk.abs_s, chunk.m.abs()), alpha=c.split)
        hidden = torch.zeros_like(chunk.empty) if chunk.vis is None else chunk.vis == 0
        low = (chunk.S - theta).masked_fill(hidden, -torch.inf).amax(-1, keepdim=True)
        high = (chunk.S + theta).masked_fill(hidden, -torch.inf).amax(-1, keepdim=True)
        if chunk.sink is not None:
            error = sink_error(c, chunk, chunk.sink) + common
            low, high = torch.maximum(low, chunk.sink - error), torch.maximum(high, chunk.sink + error)
        # |L| and |m| are at most this; l lies between 1 and n, its logarithm in base 2 below log2 n + 1.
        size = torch.maximum(low.abs(), high.abs()) + log_n
        slack = c.row_sum + chunk.terms * (c.w / 0.9) + (log2_n + 1) * (c.lg2 * LN2)
        slack = slack + (size * (c.base_fwd + 1) + 2 * (log_n + 1)) * c.u
        if c.row_sum_rounded:
            slack = slack + (c.u_p + chunk.n * (c.eta_p / 0.9)) * (1 + 2 * c.u_p)
        slack = slack * (1 + 2.0**-17) + 2.0**-149
        unit = 1.0 if form.lse_base == "e" else 1.0 / LN2
        lows.append((low - slack) * unit)
        highs.append((high + log_n + slack) * unit)
        free = chunk.empty | chunk.bad | logit_overflow(problem, chunk, form.prescale_fwd)
        frees.append(free.double())
    low, high, free = (problem.join(x).squeeze(-1) for x in (lows, highs, frees))
    return low, high, free > 0

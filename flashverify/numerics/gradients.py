"""Error terms of the backward before finalisation (docs/bounds.md, sections 8 to 12)."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk, finite, finite_rows
from flashverify.numerics.coefficients import LN2, Coefficients
from flashverify.numerics.delta import delta_of_output, delta_of_weights
from flashverify.numerics.exponential import exp_
from flashverify.numerics.flushing import CAST, flushed_operands, flushed_products
from flashverify.numerics.known_absent import nowhere, without
from flashverify.numerics.logits import TanhError, logit_error
from flashverify.numerics.starting import OffBy
from flashverify.numerics.truncation import inexact_dots, truncated_gradients

__all__ = ["CLAMP", "Cores", "Gradient", "State", "gradient_errors", "gradient_of"]

# e^100 lies above the fp32 range, so a weight that large is exempt; smaller powers keep every product below finite.
CLAMP = 100.0


@dataclass(slots=True, kw_only=True)
class Gradient:
    """Terms of one dO in one chunk that both modes share; rows are `[G, M, 1]`."""

    do: Tensor
    ado: Tensor
    bad: Tensor
    dlse: Tensor | None
    dp: Tensor  # [G, M, N], dropped and scaled
    AdP: Tensor  # |dO| |V|^T, scaled, of dropped pairs too
    nk: Tensor  # sum of |K| over visible keys, [G, M, D]
    nq: Tensor  # sum of |Q| over visible rows, [G, N, D]
    small_do: Tensor | None  # what of dO may be flushed
    flushed_dp: Tensor | None  # what flushed operands of dP lose, scaled, [G, M, N]
    ndo: Tensor  # sum of |dO| over visible rows that keep the key, scaled, [G, N, Dv]
    empty_ado: (
        Tensor | None
    )  # |dO| of rows that see nothing where their dP counts, else 0 or None; `empty_dlse` likewise
    empty_dlse: Tensor | None
    sources: tuple[object, ...]


@dataclass(slots=True, kw_only=True)
class State:
    """What B and E64 have in common in one chunk of one mode, or of several side by side."""

    o: Tensor
    L: Tensor
    R: Tensor  # S - L
    size_of_exponent: Tensor  # |S - L|
    P: Tensor
    X: Tensor  # |dP - delta + dLSE|
    ds: Tensor  # P X
    delta: Tensor
    Adelta: Tensor  # sum |dO| |O|
    abs_o: Tensor
    flushed: Tensor | None = None  # what delta loses where an operand is flushed


@dataclass(slots=True, kw_only=True)
class Cores:
    """Sums before finalisation, and what the overflow domain needs."""

    delta: Tensor  # [G, M, 1]
    dq: Tensor
    dk: Tensor
    dv: Tensor
    Pb: Tensor
    ds_max: Tensor  # largest |dS|, after the derivative of a softcap
    ds_error: Tensor  # error of dS, before it
    ds_wide: Tensor  # largest |dS|, before it

    def without_errors(self) -> "Cores":
        """The same of an evaluation in exact arithmetic."""
        zeros = {name: torch.zeros_like(getattr(self, name)) for name in ("delta", "dq", "dk", "dv", "ds_error")}
        return dataclasses.replace(self, **zeros)


def gradient_of(problem: BoundInputs, chunk: Chunk, do: Tensor, dlse: Tensor | None) -> Gradient:
    """Return the terms of a gradient, computed once for both modes when the chunk is kept."""
    known = chunk.cache.get("gradient")
    if isinstance(known, Gradient) and known.sources[0] is do and known.sources[1] is dlse:
        return known
    g = without(chunk.empty, problem.cut(do, chunk.rows))
    d = None if dlse is None else without(chunk.empty, problem.cut(dlse.unsqueeze(-1), chunk.rows))
    bad = ~finite_rows(g) if d is None else ~(finite_rows(g) & finite(d))
    g = without(bad, g)
    d = None if d is None else without(bad, d)
    ado = problem.magnitude(g)
    dp, AdP = g @ chunk.v.mT, ado @ chunk.av.mT
    if chunk.kept is not None:
        dp, AdP = dp.mul_(chunk.kept).mul_(chunk.factor), AdP.mul_(chunk.factor)
    empty_ado = empty_dlse = None
    if not problem.form.masked_ds and not nowhere(chunk.empty) and bool(chunk.empty.any()):
        empty_ado = torch.where(chunk.empty, problem.cut(do, chunk.rows), 0.0).abs().nan_to_num(0.0, 0.0, 0.0)
        if dlse is not None:
            empty_dlse = torch.where(chunk.empty, problem.cut(dlse.unsqueeze(-1), chunk.rows), 0.0).abs()
            empty_dlse = empty_dlse.nan_to_num(0.0, 0.0, 0.0)
    small_do = problem.flushable(g)
    flushed_dp = flushed_products(ado, small_do, chunk.av, chunk.small_v)
    result = Gradient(
        do=g, ado=ado, small_do=small_do, flushed_dp=None if flushed_dp is None else flushed_dp.mul_(chunk.factor), bad=bad & chunk.live, dlse=d, dp=dp, AdP=AdP,
        nk=chunk.over_keys(chunk.ak), nq=chunk.over_rows(chunk.aq), ndo=chunk.over_kept_rows(ado), sources=(do, dlse),
        empty_ado=empty_ado, empty_dlse=empty_dlse,
    )  # fmt: skip
    chunk.cache["gradient"] = result
    return result


def gradient_errors(
    c: Coefficients,
    chunk: Chunk,
    g: Gradient,
    s: State,
    B_o: OffBy | None,
    B_L: Tensor | None,
    base: float | Tensor,
    prescale: str,
) -> Cores:
    """Errors of delta and of the three gradients before their finalisation; B_o, B_L and base are those of a `Start`, or of its E64."""
    sc, Dv = c.grad_scale, chunk.v.shape[-1]
    theta, rows, tanh_error = logit_error(c, chunk, prescale, backward=not c.weights_kept, shared=True)
    offset = c.theta_bwd + rows
    if torch.is_tensor(base) or base:
        offset = offset + s.L.abs() * base
    if B_L is not None:
        offset = offset + B_L
    theta = torch.add(theta, s.size_of_exponent, alpha=c.gap).add_(offset)
    Pe = exp_(torch.add(s.R, theta).clamp_(max=CLAMP))
    BP = torch.expm1(-theta).neg_().mul_(Pe)  # P expm1(theta)
    chunk.add_visible(BP, c.w)
    Pb = chunk.add_visible(Pe, c.w)

    # E bounds the error of X = dP - delta + dLSE before its own subtraction: of dP, of delta, of dLSE.
    delta = None if c.delta_weights else delta_of_output(c, Dv, g, s, B_o)
    row_E: Tensor | float = Dv * c.w * chunk.factor if delta is None else delta + Dv * c.w * chunk.factor
    if c.dp_delta:
        row_E = row_E + s.delta.abs() * (c.dot_v + c.u_dp)
    if g.dlse is not None:
        row_E = row_E + g.dlse.abs() * (2 * c.u)
    E = torch.mul(g.AdP, c.dot_v)
    if c.truncation is not None and chunk.kept is None and not c.dp_delta:
        E.mul_(inexact_dots(c.truncation, g.do, chunk.v, g.AdP))
    E = (E if chunk.kept is None else E.mul_(chunk.kept)) + row_E
    if c.flush and g.flushed_dp is not None:
        E.add_(g.flushed_dp)
    if c.u_dp:
        E.mul_(1 + c.u_dp).add_(g.dp.abs(), alpha=c.u_dp).add_(c.eta_dp)
    if delta is None:
        cast = BP + chunk.mask(Pb * c.u_p + c.eta_p) if c.ds_rounded_p else BP
        delta = delta_of_weights(c, chunk, g, cast, Pb + (cast - BP), E)
        E.add_(g.dp.abs(), alpha=2 * c.u).add_(delta + s.delta.abs() * (2 * c.u))  # P dP - P delta as two products
    BdS = torch.addcmul(BP * s.X, Pb, torch.mul(E, 1 + 3 * c.u).add_(s.X, alpha=3 * c.u))
    if c.ds_rounded_p:
        BdS.add_(chunk.mask(Pb * c.u_p + c.eta_p).mul_(s.X + E))
    chunk.add_visible(BdS, c.w)
    dS_max = s.ds + BdS
    ds_error, ds_wide = BdS, dS_max
    if tanh_error is not None:
        BdS, dS_max = _capped(c, chunk, s.ds, BdS, tanh_error)

    P_error, P_kept = (BP, Pb) if chunk.kept is None else (BP * chunk.kept, Pb * chunk.kept)
    dq = (torch.add(BdS, dS_max, alpha=c.cast_q + c.prescaled_q) @ chunk.ak).mul_(sc)
    dq = dq + (g.nk * c.eta_ds + c.const_q if c.eta_ds else c.const_q)
    dk = (torch.add(BdS, dS_max, alpha=c.cast_k + c.prescaled_k).mT @ chunk.aq).mul_(sc)
    dk = dk + g.nq * c.eta_ds if c.eta_ds else dk
    dv = torch.add(P_error, P_kept, alpha=c.cast_v).mT @ g.ado
    if c.truncation is not None:
        cut_q, cut_k, cut_v = truncated_gradients(c, c.truncation, chunk, ds=dS_max, P=P_kept, ado=g.ado)
        dq, dk, dv = dq.add_(cut_q, alpha=sc), dk.add_(cut_k, alpha=sc), dv.add_(cut_v)
    dv = dv if chunk.kept is None else dv.mul_(chunk.factor)
    dv = dv + g.ndo * c.eta_p if c.eta_p else dv
    for prescaled, y, dim in ((c.prescaled_q, dq, -1), (c.prescaled_k, dk, -2)):
        if prescaled:
            y.add_(dS_max.sum(dim).unsqueeze(-1), alpha=c.prescale_bwd)
    lost_k, lost_q = flushed_operands(c, chunk)
    if lost_k is not None:
        dq.add_(dS_max @ lost_k)
    if lost_q is not None:
        dk.add_(dS_max.mT @ lost_q)
    if c.flush and g.small_do is not None:
        dv.add_(P_kept.mT @ g.small_do, alpha=CAST * chunk.factor)
    return Cores(delta=delta, dq=dq, dk=dk, dv=dv, Pb=Pb, ds_max=dS_max, ds_error=ds_error, ds_wide=ds_wide)


def _capped(c: Coefficients, chunk: Chunk, ds: Tensor, error: Tensor, tanh: TanhError) -> tuple[Tensor, Tensor]:
    """Error and largest magnitude of the gradient of t, `dS F`, `F = 1 - tanh^2`, from |dS| and its error; `[G, M, N]`.

    F is off by `2 |tanh| e + e^2` where the tanh is off by e, and by its own roundings. As a product it is off by a relative error: of its own,
    and `expm1(2b)` where its argument is off by b, for `|d log F / dx| <= 2`.
    """
    x, parts = c.features, chunk.parts
    assert x is not None
    assert parts is not None
    assert parts.cap is not None
    assert parts.tanh is not None
    assert parts.gain is not None
    gain = parts.gain
    gain_error = (2 * parts.tanh + tanh.value).mul_(tanh.value).clamp_(max=1.0)
    if x.gain_product:
        moved = torch.minimum(gain_error, _moved(parts.size / parts.cap, gain, tanh.argument))
        relative = (parts.size / parts.cap + tanh.argument).mul_(x.gain_slope).add_(x.gain)
        gain_error = relative.clamp_(max=1.0).mul_(gain + moved).add_(moved).add_(6 * c.w)  # e flushed: 4w
    else:
        gain_error.add_(x.gain)
    exact = ds * gain
    error = (error * (gain + gain_error)).addcmul_(ds, gain_error)
    error = chunk.add_visible(error.mul_(1 + 2 * c.u).add_(exact, alpha=2 * c.u), c.w)
    return error, exact + error


def _moved(x: Tensor, gain: Tensor, b: Tensor) -> Tensor:
    """The most that `F = sech^2 x` changes where x is off by b: `F expm1(2b)`, at most `1 - F` upwards and `F (1 - e^(-2b))` downwards.

    Upwards it is `e^(log F + 2b) - F` where b is large.
    """
    log_gain = (x + torch.log1p(torch.exp(-2 * x)) - LN2).mul_(-2)
    up = (log_gain + 2 * b).clamp_(max=0.0).exp_().sub_(gain).clamp_(min=0.0)
    down = gain * torch.expm1(-2 * b).neg_()
    return torch.where(b < 0.5, (2 * b).clamp(max=1.0).expm1_().mul_(gain), torch.maximum(up, down))

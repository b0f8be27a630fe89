"""Worst-case bounds of O and LSE (docs/bounds.md, sections 3 to 7)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.numerics.coefficients import LN2, LOG2E, OVERFLOW_FP32, Coefficients, coefficients
from flashverify.numerics.formats import FORMATS, format_of
from flashverify.numerics.problem import Chunk, Problem
from flashverify.numerics.result import ForwardBounds, check, exactly, finish
from flashverify.numerics.self_error import float64_coefficients

__all__ = ["forward_bounds"]

# Above this, exp(theta) is replaced by the largest theta of the row: log sum P e^theta <= max (S - L + theta) + log n.
_LARGE = 30.0
# e^500 times V^2 (1e77) times N stays finite; a weight that large leaves the hull of V as the bound.
_CLAMP = 500.0
# A smaller sum P e^-theta says nothing, and the hull of V is the bound; e^(_CLAMP / 2) over it stays finite, so 0 V^2 meets no infinity.
_TINY = 1e-150


def logit_terms(c: Coefficients, chunk: Chunk, *, backward: bool) -> Tensor:
    """B_S, the absolute error of a logit, without its gap term: `[G, M, N]`, natural units.

    `D(d) |scale| sum |q| |k| + kappa u |S| + d w |scale| + 2w sum |q| |k|`, and for a prescaled operand `+ u_x |scale| sum |q| |k| + eta_x sum |other| / log2 e`.
    """
    theta = torch.mul(chunk.A, c.s_dot_bwd if backward else c.s_dot_fwd).add_(chunk.abs_s, alpha=c.s_abs)
    if c.s_max and not backward:
        theta.add_(torch.maximum(chunk.abs_s, chunk.m.abs()), alpha=c.s_max)
    return theta


def logit_offsets(c: Coefficients, chunk: Chunk, prescale: str, eta: float) -> tuple[Tensor | float, Tensor | float]:
    """The parts of B_S that depend on the row only and on the key only: `[G, M, 1]` and `[G, 1, N]`, or 0."""
    rows = c.s_flush + (eta if prescale == "k" else 0.0)
    keys = c.s_flush + (eta if prescale == "q" else 0.0)
    return (
        chunk.aq.sum(-1, keepdim=True) * rows if rows else 0.0,
        (chunk.ak.sum(-1) * keys).unsqueeze(-2) if keys else 0.0,
    )


def logit_overflow(problem: Problem, chunk: Chunk, prescale: str) -> Tensor:
    """Rows `[G, M, 1]` in which a logit, or the cast of a prescaled operand, may leave its format."""
    sc = abs(problem.scale)
    largest = chunk.A.amax(-1, keepdim=True) if chunk.A.shape[-1] else torch.zeros_like(chunk.n)
    over = largest * max(1.0, sc * LOG2E) >= OVERFLOW_FP32
    if prescale != "none":
        limit = min(format_of(problem.dtype).max, OVERFLOW_FP32) / (1 + format_of(problem.dtype).u)
        largest_q = chunk.aq.amax(-1, keepdim=True) if chunk.aq.shape[-1] else torch.zeros_like(chunk.n)
        if prescale == "q":
            over = over | (largest_q * (sc * LOG2E) >= limit)
        elif chunk.ak.shape[-1]:
            keys = (chunk.ak.amax(-1, keepdim=True) * (sc * LOG2E) >= limit).double()
            over = over | (chunk.over_keys(keys) > 0)
    return over & ~chunk.empty


@dataclass(slots=True, kw_only=True)
class _Shared:
    """What B and E64 have in common in one chunk; rows are `[G, M, 1]`."""

    o: Tensor
    abs_o: Tensor
    R: Tensor  # S - L, [G, M, N]
    P: Tensor  # exp(S - L)
    gap: Tensor  # m - S
    row_sum: Tensor  # sum exp(S - m)
    L2: Tensor  # |L| / ln 2
    m2: Tensor  # |m| / ln 2
    nv: Tensor  # sum of |V| over visible keys, [G, M, Dv]
    hull: Tensor  # largest |V - O| over the hull of V, [G, M, Dv]


def _evaluate(c: Coefficients, chunk: Chunk, s: _Shared, prescale: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the bound of O before and after the rounding of the output, its part from underflow, and the bound of the LSE in base 2.

    With theta the exponent's error, `w_hat = w (1 + e)`, `|e| <= expm1(theta)`, and `O_hat - O = sum P e (V - O) / (1 + sum P e)`. Centred on O, a row
    with one dominant key keeps a small bound; Cauchy-Schwarz turns `sum W |V - O|` into matrix products.
    """
    rows, keys = logit_offsets(c, chunk, prescale, c.prescale_fwd)
    theta = logit_terms(c, chunk, backward=False).add_(s.gap, alpha=c.gap)
    log_n = torch.log(chunk.n.clamp(min=1.0))
    log2_l = torch.log2(s.row_sum)
    offset = rows + (c.theta_fwd + c.s_const)
    if c.split:
        # The partial LSE L_s of a split is stored and read back as an exponent: |L_s| <= max(|S|, |m|) + log n for each of its keys, L - L_s <=
        # m - S + log n. Its own error therefore enters theta, beside one more exponential (counted in theta_fwd).
        theta.add_(torch.maximum(chunk.abs_s, chunk.m.abs()), alpha=c.split).add_(s.gap, alpha=c.gap)
        offset = offset + (log_n * (c.split + c.gap + c.row_sum) + c.lg2 * LN2 * log2_l.clamp(min=1.0))
    theta.add_(offset)
    if not isinstance(keys, float):
        theta.add_(keys)
    T = s.R + theta
    largest = T.amax(-1, keepdim=True)
    Pe = T.clamp_(max=_CLAMP).exp_()
    h = torch.expm1(-theta).neg_()  # 1 - e^-theta
    W = Pe * h  # P expm1(theta), free of 0 * inf
    w1 = W.sum(-1, keepdim=True)
    Dlo = torch.addcmul(s.P, s.P, h, value=-1).sum(-1, keepdim=True).clamp_(min=0.0)  # sum P e^-theta
    lost = Dlo < _TINY
    Dlo = Dlo.clamp(min=_TINY)
    Pup = (Pe / Dlo).clamp_(max=1.0).masked_fill_(lost, 1.0)
    pv = chunk.mask(Pup) @ chunk.av

    Dv = chunk.v.shape[-1]
    Wvv = W @ chunk.vv
    Wv, Wv2 = Wvv[..., :Dv], Wvv[..., Dv:]
    square = torch.addcmul(Wv2, s.o * s.o, w1)
    cross = 2 * s.o * Wv
    inner = (square - cross).clamp_(min=0.0).add_(square.add_(cross.abs()), alpha=2.0**-50)
    T1 = torch.where(lost, s.hull, torch.minimum(inner.sqrt_() * (w1.sqrt() / Dlo), s.hull))

    # The computed l is at least its largest term, 1 up to rounding (e^-2u|m| where the maximum is rounded apart).
    floor = 0.9 * torch.exp(-c.s_max * chunk.m.abs()).clamp_(min=_TINY)
    inv = 1.0 / torch.maximum(s.row_sum * Dlo, floor)
    Tu = inv * (s.nv * (c.eta_p + c.w) + s.abs_o * (chunk.n * c.w) + 3 * c.w * chunk.n)
    core = T1 + pv * (c.u_p + c.u_partial) + Tu + (pv * (1 + c.u_p) + Tu) * c.dot_keys + c.eta_partial
    l_error: Tensor | float = c.row_sum + c.div
    if c.split:  # the merged LSE is rounded before it normalises every split: an error common to the row, which centring on O does not see
        l_error = l_error + torch.expm1((s.L2 * LN2 + 1).mul_(c.split).clamp_(max=_LARGE))
    flushed = Tu * (1 + c.dot_keys) + c.eta_partial
    if c.row_sum_rounded:
        lost_sum = s.abs_o * (chunk.n * inv * c.eta_p)
        core, flushed = core + (s.abs_o * c.u_p + lost_sum), flushed + lost_sum
    before = core + (s.abs_o + core) * l_error
    after = before + (s.abs_o + before) * c.u_out + c.eta_out
    flushed = flushed * ((1 + l_error) * (1 + c.u_out)) + c.eta_out

    log_sum = torch.where(largest > _LARGE, largest + log_n, torch.log1p(w1))
    relative = log_sum + c.row_sum + chunk.n * inv * c.w
    if c.row_sum_rounded:
        relative = relative + (c.u_p + chunk.n * inv * c.eta_p) * (1 + 2 * c.u_p)
    # A logarithm that is taken in base 2 and converted costs 2u log2 l more, also where the sum with m cancels.
    lse = (
        relative * (1 / LN2) + (log2_l + log_sum).clamp(min=1.0) * c.lg2 + (s.L2 * c.base_fwd + s.m2 + 2 * log2_l) * c.u
    )
    return before, after, flushed, lse * (1 + 2.0**-17)


def _chunk_bounds(problem: Problem, chunk: Chunk, o: Tensor, lse: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
    c, c64 = (
        coefficients(problem.form, problem.dtype, problem.shape, problem.scale),
        float64_coefficients(problem.shape, problem.scale),
    )
    prescale = problem.form.prescale_fwd
    empty = chunk.empty
    o, L = problem.cut(o, chunk.rows), problem.cut(lse.unsqueeze(-1), chunk.rows).masked_fill(empty, 0.0)
    unknown, unknown_o = ~torch.isfinite(L), ~torch.isfinite(o)
    o, L = torch.where(unknown_o | unknown | empty, 0.0, o), torch.where(unknown, 0.0, L)
    nv = chunk.over_keys(chunk.av)
    top, low = chunk.top, chunk.low
    R = chunk.S - L
    shared = _Shared(
        o=o, abs_o=o.abs(), R=R, P=torch.exp(R.clamp(max=_CLAMP)), gap=chunk.m - chunk.S, row_sum=torch.exp((L - chunk.m).clamp(0.0, _CLAMP)),
        L2=L.abs() * LOG2E, m2=chunk.m.abs() * LOG2E, nv=nv, hull=torch.maximum(top - o, o - low).clamp_(min=0.0),
    )  # fmt: skip
    before, after, flushed, lse2 = _evaluate(c, chunk, shared, prescale)
    _, self_o, _, self_lse2 = _evaluate(c64, chunk, shared, "none")

    logits = logit_overflow(problem, chunk, prescale)
    # p <= 2^tau at every running maximum, so sum |V| bounds every accumulator; l Pup |V| alone misses the early ones of ascending maxima.
    accumulator = (nv * 2.0**problem.form.rescale_threshold >= OVERFLOW_FP32) & ~empty
    row = logits | chunk.bad | (unknown & ~empty)
    exempt = row | accumulator | (unknown_o & ~empty)
    if chunk.bad_v is not None:
        exempt = exempt | chunk.bad_v
    reasons = {
        "logit_overflow": logits.sum(),
        "accumulator_overflow": accumulator.sum(),
        "non_finite_input": (chunk.bad if chunk.bad_v is None else chunk.bad | chunk.bad_v).sum(),
        "non_finite_oracle": (unknown & ~empty & ~chunk.bad).sum(),
    }
    trivial_o = torch.maximum(top, -low).clamp(min=0.0) + 2 * flushed
    trivial_lse = (
        chunk.A.amax(-1, keepdim=True) * abs(problem.scale) + torch.log(chunk.n.clamp(min=1.0)) + 1.0
    ) * LOG2E
    return [o, before, after, self_o, exempt, trivial_o, flushed, L, lse2, self_lse2, row, trivial_lse, empty], reasons


def forward_bounds(problem: Problem, o: Tensor, lse: Tensor) -> ForwardBounds:
    """Bound every element of O and LSE for a kernel of the problem's form.

    Args:
        problem: The problem.
        o: The oracle's O, `[B, Hq, Sq, Dv]`, float64.
        lse: The oracle's LSE, `[B, Hq, Sq]`, natural logarithm, -inf for rows that see nothing, float64.

    Returns:
        The bounds and E64. Rows that see nothing are exact: bound 0.
    """
    out = FORMATS[problem.form.out_dtype or problem.dtype]
    if problem.shape.Sk == 0 or lse.numel() == 0:
        nothing = torch.zeros(*lse.shape, 2, dtype=torch.float64, device=lse.device)
        return ForwardBounds(
            o=exactly(o), lse=exactly(lse), lse_base2=nothing, o_underflow=torch.zeros_like(o), reasons={}
        )
    parts, reasons = [], dict[str, Tensor]()
    for chunk in problem.chunks():
        terms, counted = _chunk_bounds(problem, chunk, o, lse)
        parts.append(terms)
        reasons = {name: count + reasons.get(name, 0) for name, count in counted.items()}
    y, before, after, self_o, exempt, trivial_o, flushed, L, lse2, self2, row, trivial_lse, empty = (
        problem.join(list(x)) for x in zip(*parts, strict=True)
    )
    o_bound = finish(y, before, after, self_o, exact=empty, exempt=exempt, trivial=trivial_o, out=out)
    unit = LN2 if problem.form.lse_base == "e" else 1.0
    b2, e2 = lse2.masked_fill(empty, 0.0), self2.masked_fill(empty | row, 0.0)
    single = FORMATS["fp32"]
    lse_args = (x.squeeze(-1) for x in (L * (unit / LN2), b2 * unit, b2 * unit, e2 * unit))
    E = empty.squeeze(-1)
    bound = finish(*lse_args, exact=E, exempt=row.squeeze(-1), trivial=trivial_lse.squeeze(-1) * unit, out=single)
    check(o_bound, bound)
    return ForwardBounds(
        o=o_bound, lse=bound, lse_base2=torch.cat([b2.masked_fill(row & ~empty, torch.inf), e2], -1), o_underflow=flushed,
        reasons=reasons,
    )  # fmt: skip

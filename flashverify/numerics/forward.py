"""Worst-case bounds of O and LSE (docs/bounds.md, sections 3 to 7)."""

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics.accumulators import accumulator_overflow
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk, finite
from flashverify.numerics.coefficients import LN2, LOG2E, Coefficients
from flashverify.numerics.exponential import exp_
from flashverify.numerics.forward_parts import Errors, Shared
from flashverify.numerics.hull import hull_of_rows
from flashverify.numerics.known_absent import below, nowhere, without
from flashverify.numerics.logits import largest_logit, logit_error, logit_overflow, sink_error
from flashverify.numerics.normalising import LARGE, exponent_of_lse, lse_error
from flashverify.numerics.result import ForwardBounds, check, exactly, finish, rounded
from flashverify.numerics.running_maximum import follows_order, running_maximum
from flashverify.numerics.scaled import error_of_values, smallest_units
from flashverify.numerics.self_error import float64_coefficients
from flashverify.numerics.spread import centred_spread
from flashverify.numerics.strict import join_strict, predict_o, predicts_o
from flashverify.numerics.terms import ForwardTerms, joined_rows
from flashverify.numerics.tile_sums import accumulates_in_order, sum_error
from flashverify.numerics.truncation import truncated_row_sum, truncated_sum

__all__ = ["forward_bounds"]

# e^500 times V^2 (1e77) times N stays finite; a weight that large leaves the hull of V as the bound.
_CLAMP = 500.0
# A smaller sum P e^-theta says nothing, and the hull of V is the bound; e^(_CLAMP / 2) over it stays finite, so 0 V^2 meets no infinity.
_TINY = 1e-150


def _evaluate(
    c: Coefficients, chunk: Chunk, s: Shared, prescale: str, ordered: BoundInputs | None = None, *, own: bool = False
) -> Errors:
    """Return the bounds of O and of the LSE, and what the strict bound takes from them; `ordered` is the problem where its form declares the order of the tiles.

    Of E64, the oracle's `own`, nothing is asked of underflow. What has the coefficient 0 is left out.

    With theta the exponent's error, `w_hat = w (1 + e)`, `|e| <= expm1(theta)`, and `O_hat - O = sum P e (V - O) / (1 + sum P e)`. Centred on O, a row
    with one dominant key keeps a small bound; Cauchy-Schwarz turns `sum W |V - O|` into matrix products.
    """
    theta, rows, _ = logit_error(c, chunk, prescale, backward=False)
    theta.add_(s.gap, alpha=c.gap)
    terms, log_n, log2_l = chunk.terms, s.log_n, s.log2_l
    offset = c.theta_fwd + rows
    common: Tensor | float = c.theta_fwd
    if c.split:
        # The partial LSE L_s of a split is stored and read back as an exponent: |L_s| <= max(|S|, |m|) + log n for each of its keys, L - L_s <=
        # m - S + log n. Its own error therefore enters theta, beside one more exponential (counted in theta_fwd).
        gap, each = c.gap * c.merges, c.lg2 * LN2 * c.merges
        theta.add_(torch.maximum(chunk.abs_s, chunk.m.abs()), alpha=c.split + c.split_lse).add_(s.gap, alpha=gap)
        stored = log_n * (c.split + gap + c.row_sum * c.merges) + each * log2_l.clamp(min=1.0)
        offset, common = offset + stored, common + stored
    walk = None
    if ordered is not None:
        walk, common = running_maximum(ordered, c, chunk, theta.add_(rows)), c.eps
        offset = walk.constants(c)[..., : theta.shape[-1]]
    theta.add_(offset)
    T = s.R + theta
    largest = T.amax(-1, keepdim=True)
    Pe = exp_(T.clamp_(max=_CLAMP))
    h = torch.expm1(-theta).neg_()  # 1 - e^-theta
    W = Pe * h  # P expm1(theta), free of 0 * inf
    w1 = W.sum(-1, keepdim=True)
    Dlo = torch.addcmul(s.P, s.P, h, value=-1).sum(-1, keepdim=True).clamp_(min=0.0)  # sum P e^-theta
    if chunk.sink is not None and s.sink is not None:  # one more column, with V = 0
        theta_sink = sink_error(c, chunk, chunk.sink) + common
        T_sink, h = s.sink + theta_sink, torch.expm1(-theta_sink).neg_()
        largest = torch.maximum(largest, T_sink)
        w1 = w1 + T_sink.clamp(max=_CLAMP).exp_() * h
        Dlo = Dlo + s.sink.clamp(max=_CLAMP).exp_() * (1 - h)
    lost = Dlo < _TINY
    none_lost = nowhere(lost)
    Dlo = Dlo.clamp(min=_TINY)
    row_sum: Tensor | float = c.row_sum
    if walk is not None:
        apart = (2 * w1 / Dlo).clamp_(max=2.0)  # between the exact weights and the computed ones, both normalised
        row_sum = walk.row_sum(c, s.P, apart)
    if c.truncation is not None:
        row_sum = truncated_row_sum(c, c.truncation, chunk, Pe / Dlo)
    # The computed l is at least its largest term, 1 up to rounding (e^-2u|m| where the maximum is rounded apart).
    least_sum = s.row_sum * Dlo
    if c.s_max:
        inv = 1.0 / torch.maximum(least_sum, 0.9 * torch.exp(-c.s_max * chunk.m.abs()).clamp_(min=_TINY))
    else:
        inv = 1.0 / least_sum.clamp_(min=0.9)
    log_sum = torch.where(largest > LARGE, largest + log_n, torch.log1p(w1))
    relative, lse = lse_error(c, chunk, inv, log_sum, log2_l, s.L2, s.m2, row_sum)
    sum_inv = inv

    def of_lse() -> Tensor:
        return exponent_of_lse(c, s.L2 * LN2, s.m2 * LN2, log2_l, log_sum)

    if c.normalise == "lse_weights":
        # The second pass has no rescales: its exponential is that of the LSE.
        reached = theta + (lse * LN2 + of_lse() + log2_l * (c.gap * LN2) - c.theta_fwd)
        Pe = exp_(torch.add(s.R, reached).clamp_(max=_CLAMP))
        W = Pe * torch.expm1(-reached).neg_()
        w1, Dlo, inv = W.sum(-1, keepdim=True), torch.ones_like(Dlo), torch.ones_like(inv)
        Pup = Pe
    else:
        Pup = (Pe / Dlo).clamp_(max=1.0)
        Pup = Pup if none_lost else Pup.masked_fill_(lost, 1.0)
    pv = chunk.mask(Pup) @ chunk.av if chunk.kept is None else (Pup * chunk.kept @ chunk.av).mul_(chunk.factor)

    spread = centred_spread(chunk, s.o_twice, s.o_square, W, w1, Dlo)
    if c.normalise == "lse_weights":  # nothing makes their sum 1: beside the spread, O times the error of the sum
        T1 = torch.minimum(spread, s.hull * (1 + w1)) + s.abs_o * w1
    else:  # up to w1 = Dlo the spread is no larger than the hull of the row
        hull = hull_of_rows(chunk, s.o, s.hull, lost | (w1 > Dlo))
        T1 = torch.minimum(spread, hull)
        T1 = T1 if none_lost else torch.where(lost, hull, T1)

    nv, least = (s.nv_unit, s.n_most) if c.quantised else (s.nv, chunk.n)
    Tu = nv * (c.eta_p + c.w) + s.abs_o * (terms * c.w) + (3 * c.w * chunk.factor) * least
    Tu = inv * (Tu + c.eta_acc if c.eta_acc else Tu)
    if c.eta_cast:
        Tu = Tu + nv * c.eta_cast
    drop_cast = 0.0 if c.features is None else c.features.drop_cast
    sums = (pv * (1 + c.u_p) if c.u_p else pv) + Tu
    summed = sums * c.dot_keys
    if c.truncation is not None:
        summed = truncated_sum(c, c.truncation, chunk, Pup, sums, inv)
    if walk is not None and ordered is not None and accumulates_in_order(ordered):
        summed = torch.minimum(summed, sum_error(c, chunk, walk, P=s.P, pv=pv, flushed=Tu, apart=apart))
    if c.quantised:
        T1 = T1 + error_of_values(chunk, Pup) * (1 + c.u_p + c.u_partial + c.u_acc + c.dot_keys)
    casts = c.u_p + c.u_partial + c.u_acc + drop_cast
    core = (T1 + pv * casts if casts else T1) + Tu + summed
    core = core + c.eta_partial if c.eta_partial else core
    l_error: Tensor | float = row_sum + c.div
    if c.normalise == "lse":
        l_error = l_error + torch.expm1(of_lse().clamp(max=LARGE))
    if c.split:  # the merged LSE is rounded before it normalises every split: an error common to the row, which centring on O does not see
        l_error = l_error + torch.expm1((s.L2 * LN2 + 1).mul_(c.split).clamp_(max=LARGE))
    flushed = None
    if not own:
        flushed = Tu * (1 + c.dot_keys)
        flushed = flushed + c.eta_partial if c.eta_partial else flushed
    if c.row_sum_rounded:
        lost_sum = s.abs_o * (chunk.n * inv * c.eta_p)
        core, flushed = core + (s.abs_o * c.u_p + lost_sum), None if flushed is None else flushed + lost_sum
    before = core + (s.abs_o + core) * l_error
    after = rounded(before, s.abs_o, c.u_out, c.eta_out)
    flushed = None if flushed is None else flushed * ((1 + l_error) * (1 + c.u_out)) + c.eta_out

    return Errors(
        before=before, after=after, flushed=flushed, lse=lse * (1 + 2.0**-17), walk=walk, log_l=relative, inv=sum_inv
    )


def _chunk_terms(problem: BoundInputs, chunk: Chunk, o: Tensor, lse: Tensor) -> ForwardTerms:
    c, c64 = (
        problem.coefficients(),
        float64_coefficients(problem.shape, problem.scale, problem.features),
    )
    prescale = problem.form.prescale_fwd
    empty = chunk.empty
    o, L = problem.cut(o, chunk.rows), problem.cut(lse.unsqueeze(-1), chunk.rows).masked_fill(empty, 0.0)
    unknown = ~finite(L)
    size_o = o.abs()
    unknown_o = None if below(size_o, torch.inf) else ~(size_o < torch.inf)
    unread = unknown | empty
    given_o, L = o, without(unknown, L)
    o = without(unread if unknown_o is None else unread | unknown_o, o)
    nv = chunk.over_kept_keys(chunk.av)
    nv_unit, n_most = smallest_units(chunk, nv)
    top, low = chunk.top, chunk.low
    R, row_sum = chunk.S - L, torch.exp((L - chunk.m).clamp(0.0, _CLAMP))
    shared = Shared(
        o=o, abs_o=size_o if o is given_o else o.abs(), o_square=o * o, o_twice=2 * o, R=R, P=exp_(R.clamp(max=_CLAMP)), nv_unit=nv_unit, n_most=n_most, gap=chunk.m - chunk.S, row_sum=row_sum, log2_l=torch.log2(row_sum), log_n=torch.log(chunk.terms.clamp(min=1.0)),
        L2=L.abs() * LOG2E, m2=chunk.m.abs() * LOG2E, nv=nv, hull=torch.maximum(top - o, o - low).clamp_(min=0.0),
        sink=None if chunk.sink is None else chunk.sink - L,
    )  # fmt: skip
    found = _evaluate(c, chunk, shared, prescale, problem if follows_order(problem) else None)
    own = found.without_errors() if problem.directed else _evaluate(c64, chunk, shared, "none", own=True)
    assert found.flushed is not None
    strict = strict_error = None
    if found.walk is not None and predicts_o(problem):
        log_l = found.log_l * (1 + 2.0**-17) + own.lse * LN2
        strict, strict_error = predict_o(problem, c, chunk, L=L, walk=found.walk, log_l=log_l, inv=found.inv, nv=nv)

    logits = logit_overflow(problem, chunk, prescale)
    accumulator = accumulator_overflow(problem, c, chunk, nv)
    row = logits | chunk.bad | (unknown & chunk.live)
    exempt = row | accumulator
    if unknown_o is not None:
        exempt = exempt | (unknown_o & chunk.live)
    if chunk.bad_v is not None:
        exempt = exempt | chunk.bad_v
    trivial_o = torch.maximum(top, -low).clamp(min=0.0) + 2 * found.flushed
    trivial_lse = (largest_logit(problem, chunk) + shared.log_n + 1.0) * LOG2E
    return ForwardTerms(
        o=o, o_before=found.before, o_after=found.after, o_self=own.after, o_flushed=found.flushed, o_exempt=exempt.expand_as(o), o_trivial=trivial_o,
        lse=L, lse_bound=found.lse, lse_self=own.lse, lse_exempt=row, lse_trivial=trivial_lse,
        empty=empty, strict=strict, strict_error=strict_error,
    )  # fmt: skip


def forward_bounds(problem: BoundInputs, o: Tensor, lse: Tensor) -> ForwardBounds:
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
            o=exactly(o), lse=exactly(lse), lse_base2=nothing,
            o_unrounded=torch.zeros_like(o), o_underflow=torch.zeros_like(o),
        )  # fmt: skip
    rows = joined_rows(problem, [_chunk_terms(problem, chunk, o, lse) for chunk in problem.chunks()])
    empty, row = rows.empty, rows.lse_exempt
    o_bound = finish(
        rows.o, rows.o_before, rows.o_after, rows.o_self, exact=empty, exempt=rows.o_exempt, trivial=rows.o_trivial, out=out
    )  # fmt: skip
    unit = LN2 if problem.form.lse_base == "e" else 1.0
    b2, e2 = rows.lse_bound.masked_fill(empty, 0.0), rows.lse_self.masked_fill(empty | row, 0.0)
    lse_bound = (b2 * unit).squeeze(-1)
    bound = finish(
        (rows.lse * (unit / LN2)).squeeze(-1),
        lse_bound,
        lse_bound,
        (e2 * unit).squeeze(-1),
        exact=empty.squeeze(-1),
        exempt=row.squeeze(-1),
        trivial=rows.lse_trivial.squeeze(-1) * unit,
        out=FORMATS["fp32"],
    )
    check(o_bound, bound)
    strict = None
    if rows.strict is not None and rows.strict_error is not None:
        strict = join_strict(o_bound, rows.o, rows.strict, rows.strict_error, out, out.eta)
    lse_base2 = torch.cat([b2.masked_fill(row & ~empty, torch.inf), e2], -1)
    return ForwardBounds(
        o=o_bound, lse=bound, lse_base2=lse_base2, strict=strict,
        o_unrounded=rows.o_before.masked_fill(empty, 0.0), o_underflow=rows.o_flushed,
    )  # fmt: skip

"""Worst-case bounds of delta, dQ, dK, dV and of the gradients of what modifies the logits (docs/bounds.md, sections 8 to 13), end to end and conditional."""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics.bound_inputs import BoundInputs, Pairs
from flashverify.numerics.chunk import Chunk, finite, finite_rows
from flashverify.numerics.coefficients import LN2, Coefficients
from flashverify.numerics.delta import error_of_o, stored_delta
from flashverify.numerics.exponential import exp_
from flashverify.numerics.gradients import CLAMP, State, gradient_errors, gradient_of
from flashverify.numerics.known_absent import below, nowhere, without
from flashverify.numerics.learned import PairTerms, bias_bound, joined_bias, onto_bias
from flashverify.numerics.logits import logit_overflow
from flashverify.numerics.overflow import overflow_domain
from flashverify.numerics.relative import onto_buckets, table_bound
from flashverify.numerics.result import BackwardBounds, ForwardBounds, OutputBound, check, exactly, finish, rounded
from flashverify.numerics.self_error import float64_coefficients
from flashverify.numerics.sinks import SinkTerms, sink_bound, sink_errors, sink_terms
from flashverify.numerics.strict import join_strict, predict_dv, predicts_dv
from flashverify.numerics.terms import KeySum, KeyTerms, PredictedSum, RowTerms, joined_rows
from flashverify.numerics.trivial import trivial_ranges

__all__ = ["backward_bounds"]


def _finalise(core: Tensor, size: Tensor, c: Coefficients) -> tuple[Tensor, Tensor]:
    """`b = core + 3u (|y| + core)`, and with the output's rounding `b + u_out (|y| + b) + eta_out`; `size` is |y|."""
    b = core + (size + core) * (3 * c.u)
    return b, rounded(b, size, c.u_grad, c.eta_grad)


def backward_bounds(
    problem: BoundInputs,
    *,
    do: Tensor,
    o: Tensor,
    lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    dlse: Tensor | None = None,
    dbias: Tensor | None = None,
    dsink: Tensor | None = None,
    drelative_bias: Tensor | None = None,
    relative_buckets: Pairs | None = None,
    forward: ForwardBounds | None = None,
    stored: Collection[str] | None = None,
) -> BackwardBounds:
    """Bound every element of delta, dQ, dK and dV, and of the gradients of bias, sink and relative bias, for a kernel of the problem's form.

    End to end (`forward` given): `o`, `lse` and the gradients are the oracle's, and the errors of the stored O and LSE are carried through.
    Conditional (`forward` None): `o` and `lse` are the subject's own, the oracle's gradients were computed from them, and their error is no part of B.
    A backward that reads only one of them is given the bounds of the forward for the other, and `stored` names the one that it reads.

    Args:
        problem: The problem.
        do: Gradient of O, `[B, Hq, Sq, Dv]`.
        o: O, `[B, Hq, Sq, Dv]`.
        lse: LSE, `[B, Hq, Sq]`, natural logarithm (convert a subject's base-2 LSE in float64).
        dq: The oracle's dQ, `[B, Hq, Sq, D]`, float64.
        dk: The oracle's dK, `[B, Hkv, Sk, D]`, float64, summed over the group.
        dv: The oracle's dV, `[B, Hkv, Sk, Dv]`, float64, summed over the group.
        dlse: Gradient of the natural LSE, `[B, Hq, Sq]`, or None.
        dbias: The oracle's gradient of one bias, in its shape of four axes that broadcast to `[B, Hq, Sq, Sk]`, float64, or None.
        dsink: The oracle's gradient of the sink, `[Hq]`, float64, or None.
        drelative_bias: The oracle's gradient of the table of a relative bias, `[Hq, buckets]`, float64, or None.
        relative_buckets: The bucket of each pair, as `onto_buckets` takes it; given with `drelative_bias`.
        forward: The forward bounds, for the end-to-end mode.
        stored: Which of `"o"` and `"lse"` are the subject's own; None for both where `forward` is None, and for neither where it is given.

    Returns:
        The bounds and E64; of delta, of what the form says that it holds. Rows that see nothing, and keys that nothing sees, are exact: bound 0.
    """
    c, c64 = (
        problem.coefficients(),
        float64_coefficients(problem.shape, problem.scale, problem.features),
    )
    out = FORMATS[problem.form.grad_dtype or problem.dtype]
    if problem.shape.Sk == 0 or lse.numel() == 0:
        return BackwardBounds(
            delta=exactly(lse), dq=exactly(dq), dk=exactly(dk), dv=exactly(dv),
            dbias=None if dbias is None else exactly(dbias), dsink=None if dsink is None else exactly(dsink),
            drelative_bias=None if drelative_bias is None else exactly(drelative_bias),
        )  # fmt: skip
    parts = []
    stored = frozenset(("o", "lse") if forward is None else ()) if stored is None else stored
    error_o = error_of_o(problem, o, forward, stored="o" in stored)
    shape = None if dbias is None else dbias.shape
    of_table = None
    if drelative_bias is not None and relative_buckets is not None:
        of_table = functools.partial(onto_buckets, problem, relative_buckets, drelative_bias.shape[1])
    for chunk in problem.chunks():
        given = (do, o, lse, dq, dlse, forward, stored, error_o, shape, of_table)
        parts.append(_chunk_terms(problem, chunk, c, c64, *given, with_sink=dsink is not None))
    rows = joined_rows(problem, [part.rows for part in parts])
    keys = functools.reduce(KeyTerms.join, (part.keys for part in parts))

    def output(y: Tensor, core: Tensor, core64: Tensor, exact: Tensor, exempt: Tensor, trivial: Tensor) -> OutputBound:
        y = y.double()
        size = y.abs()
        before, after = _finalise(core, size, c)
        return finish(
            y, before, after, _finalise(core64, size, c64)[1], exact=exact, exempt=exempt, trivial=trivial + 2 * out.eta, out=out
        )  # fmt: skip

    def by_key(y: Tensor, terms: KeySum, const: float, const64: float) -> OutputBound:
        core, core64 = terms.core + const, terms.self_core + const64
        sums = (core, core64, ~keys.seen & ~terms.hidden, terms.exempt, terms.trivial + 2 * const)
        core, core64, exact, exempt, trivial = (x.reshape(*y.shape[:3], x.shape[-1]) for x in sums)
        return output(y, core, core64, exact, exempt, trivial)

    b_dv = by_key(dv, keys.dv, c.const_v, c64.const_v)
    strict_dv = None
    if keys.strict is not None:
        value, core = keys.strict.value.reshape(dv.shape), keys.strict.core.reshape(dv.shape)
        strict_dv = join_strict(
            b_dv, dv.double(), value, _finalise(core + c.const_v, value.abs(), c)[0], out, c.eta_grad
        )
    b_delta = rows.delta_bound.squeeze(-1)
    result = BackwardBounds(
        delta=finish(
            rows.delta.squeeze(-1),
            b_delta,
            b_delta,
            rows.delta_self.squeeze(-1),
            exact=(rows.dq_exact if problem.form.delta_from == "p" else rows.empty).squeeze(-1),
            exempt=rows.delta_exempt.squeeze(-1),
            trivial=rows.delta_trivial.squeeze(-1),
            out=FORMATS["fp32"],
        ),
        dq=output(rows.dq, rows.dq_core, rows.dq_self, rows.dq_exact, rows.dq_exempt, rows.dq_trivial),
        dk=by_key(dk, keys.dk, c.const_k, c64.const_k),
        dv=b_dv,
        dbias=None if dbias is None else bias_bound(problem, c, c64, dbias, _joined_bias(problem, dbias.shape, parts)),
        dsink=None if dsink is None else sink_bound(problem, c, c64, dsink, _joined_sink(parts)),
        drelative_bias=None
        if drelative_bias is None
        else table_bound(c, c64, drelative_bias, [x.table for x in parts]),
        strict=strict_dv,
    )
    learned = (x for x in (result.dbias, result.dsink, result.drelative_bias) if x is not None)
    check(result.delta, result.dq, result.dk, result.dv, *learned)
    return result


@dataclass(slots=True, kw_only=True, eq=False)
class _ChunkTerms:
    """Terms of one chunk: of its rows, of the sums over them, and terms of a bias, a sink and a relative bias."""

    rows: RowTerms
    keys: KeyTerms
    bias: PairTerms | None
    sink: SinkTerms | None
    table: PairTerms | None


def _joined_bias(problem: BoundInputs, shape: torch.Size, parts: list[_ChunkTerms]) -> PairTerms:
    return joined_bias(problem, shape, [part.bias for part in parts if part.bias is not None])


def _joined_sink(parts: list[_ChunkTerms]) -> SinkTerms:
    return functools.reduce(SinkTerms.join, (part.sink for part in parts if part.sink is not None))


def _chunk_terms(
    problem: BoundInputs, chunk: Chunk, c: Coefficients, c64: Coefficients,
    do: Tensor, o: Tensor, lse: Tensor, dq: Tensor, dlse: Tensor | None,
    forward: ForwardBounds | None, stored: Collection[str], error_o: Tensor | None,
    bias_shape: torch.Size | None, of_table: Callable[[Chunk], Callable[[Tensor], Tensor]] | None, *, with_sink: bool,
) -> _ChunkTerms:  # fmt: skip
    form = problem.form
    empty, prescale = chunk.empty, form.prescale_fwd if form.p_from == "forward" else form.prescale_bwd
    g = gradient_of(problem, chunk, do, dlse)
    o = without(empty, problem.cut(o, chunk.rows))
    L = problem.cut(lse.unsqueeze(-1), chunk.rows).masked_fill(empty, 0.0)
    stored_o, stored_L = ~finite_rows(o), ~finite(L)
    o, L = without(stored_o, o), without(stored_L, L)
    delta = (g.do * o).sum(-1, keepdim=True)
    R = chunk.S - L
    P = exp_(R.clamp(max=CLAMP))
    X = (g.dp - delta if g.dlse is None else g.dp - (delta - g.dlse)).abs_()
    s = State(o=o, L=L, R=R, P=P, X=X, ds=P * X, delta=delta, Adelta=(g.ado * o.abs()).sum(-1, keepdim=True))
    lost_p, lost_ds = stored_L, stored_o
    B_o = None if error_o is None else problem.cut(error_o, chunk.rows)
    underflow = E_o = B_L = E_L = None
    if forward is not None and "o" not in stored:
        E_o = problem.cut(forward.o.self_error, chunk.rows)
        if form.delta_from != "p":
            underflow = problem.cut(forward.o_underflow, chunk.rows)
            if not (nowhere(forward.o.may_overflow) and below(forward.o.bound, torch.inf)):
                o_over = problem.cut(forward.o.may_overflow | forward.o.exempt, chunk.rows).any(-1, keepdim=True)
                lost_ds = stored_o | o_over
    if forward is not None and "lse" not in stored:
        both = problem.cut(forward.lse_base2, chunk.rows) * LN2
        lse_over = both[..., :1] == torch.inf
        B_L, E_L, lost_p = without(lse_over, both[..., :1]), both[..., 1:], stored_L | lse_over
    if B_o is not None and not below(B_o, torch.inf):
        B_o = torch.where(torch.isinf(B_o), 0.0, B_o)
    cores = gradient_errors(c, chunk, g, s, B_o, B_L, prescale)
    self_cores = cores.without_errors() if problem.directed else gradient_errors(c64, chunk, g, s, E_o, E_L, "none")
    over = overflow_domain(
        c, chunk, g, s, cores, logit_overflow(problem, chunk, prescale), lost_p, lost_ds,
        masked=form.masked_ds, with_pairs=bias_shape is not None or of_table is not None,
    )  # fmt: skip
    t_delta, t_X, t_dq, t_dk, t_dv = trivial_ranges(problem, c, chunk, g, s, B_o, underflow)
    returned, b_delta, e_delta, t_returned = stored_delta(
        problem, c, c64, g.dlse, delta, cores.delta, self_cores.delta, t_delta
    )
    rows = RowTerms(
        delta=returned, delta_bound=b_delta, delta_self=e_delta, delta_trivial=t_returned, delta_exempt=over.delta,
        dq=problem.cut(dq, chunk.rows), dq_core=cores.dq, dq_self=self_cores.dq, dq_trivial=t_dq, dq_exempt=over.dq.expand_as(t_dq),
        empty=empty, dq_exact=empty & ~over.empty,
    )  # fmt: skip
    of_dk = KeySum(core=cores.dk, self_core=self_cores.dk, trivial=t_dk, exempt=over.dk, hidden=over.hidden)
    of_dv = KeySum(core=cores.dv, self_core=self_cores.dv, trivial=t_dv, exempt=over.dv, hidden=over.hidden_v)
    strict = None
    if "lse" in stored and predicts_dv(problem):
        value, core = predict_dv(problem, c, chunk, P=P, Pb=cores.Pb, ado=g.ado, do=g.do)
        strict = PredictedSum(value=value, core=core)
    of_bias = of_sink = table = None
    if bias_shape is not None:
        of_bias = PairTerms.of(c, chunk, cores, self_cores, over, t_X, onto_bias(problem, bias_shape))
    if of_table is not None:
        table = PairTerms.of(c, chunk, cores, self_cores, over, t_X, of_table(chunk))
    if with_sink:
        errors = sink_errors(problem, c, chunk, g, s, cores.delta, B_L)
        own = sink_errors(problem, c64, chunk, g, s, self_cores.delta, E_L)
        largest = t_delta if g.dlse is None else t_delta + g.dlse.abs()
        of_sink = sink_terms(problem, chunk, errors, own, largest, over.delta)
    keys = KeyTerms(dk=of_dk, dv=of_dv, seen=chunk.seen, strict=strict)
    return _ChunkTerms(rows=rows, keys=keys, bias=of_bias, sink=of_sink, table=table)

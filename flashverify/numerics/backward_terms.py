"""What one chunk of rows contributes to the bounds of the backward in one mode, and the sums over all chunks (docs/bounds.md, sections 8 to 12)."""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from flashverify.numerics.bound_inputs import BoundInputs, Pairs
from flashverify.numerics.chunk import Chunk, finite, finite_rows
from flashverify.numerics.coefficients import LN2, Coefficients
from flashverify.numerics.delta import error_of_o, stored_delta
from flashverify.numerics.exponential import exp_
from flashverify.numerics.gradients import CLAMP, State, gradient_errors, gradient_of
from flashverify.numerics.known_absent import below, nowhere, without
from flashverify.numerics.learned import PairTerms, joined_bias, onto_bias
from flashverify.numerics.logits import logit_overflow
from flashverify.numerics.overflow import overflow_domain
from flashverify.numerics.relative import onto_buckets
from flashverify.numerics.result import BackwardBounds, ForwardBounds, exactly
from flashverify.numerics.sinks import SinkTerms, sink_errors, sink_terms
from flashverify.numerics.strict import predict_dv, predicts_dv
from flashverify.numerics.terms import KeySum, KeyTerms, PredictedSum, RowTerms, joined_rows
from flashverify.numerics.trivial import trivial_ranges

__all__ = ["Mode", "ModeTerms"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mode:
    """What a backward starts from, and the oracle's gradients of that, as `backward_bounds` takes them."""

    o: Tensor
    lse: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    dbias: Tensor | None = None
    dsink: Tensor | None = None
    drelative_bias: Tensor | None = None
    forward: ForwardBounds | None = None
    stored: Collection[str] | None = None

    @property
    def given(self) -> frozenset[str]:
        """Which of `"o"` and `"lse"` are the subject's own."""
        if self.stored is not None:
            return frozenset(self.stored)
        return frozenset(("o", "lse") if self.forward is None else ())

    def exactly(self) -> BackwardBounds:
        """The bounds of gradients that are exact."""
        dbias, dsink, table = (None if y is None else exactly(y) for y in (self.dbias, self.dsink, self.drelative_bias))
        return BackwardBounds(
            delta=exactly(self.lse), dq=exactly(self.dq), dk=exactly(self.dk), dv=exactly(self.dv),
            dbias=dbias, dsink=dsink, drelative_bias=table,
        )  # fmt: skip


@dataclass(slots=True, kw_only=True, eq=False)
class ModeTerms:
    """Terms of one mode over all rows: of rows, of sums over them, and of a bias, a sink and a relative bias."""

    mode: Mode
    rows: RowTerms
    keys: KeyTerms
    bias: PairTerms | None
    sink: SinkTerms | None
    table: PairTerms | None

    @classmethod
    def of(
        cls, problem: BoundInputs, c: Coefficients, c64: Coefficients, mode: Mode, *,
        do: Tensor, dlse: Tensor | None, relative_buckets: Pairs | None,
    ) -> Self:  # fmt: skip
        """The terms of a mode.

        Args:
            problem: The problem.
            c: Its coefficients.
            c64: Those of the oracle.
            mode: The mode.
            do: As `backward_bounds` takes it.
            dlse: Likewise.
            relative_buckets: Likewise.
        """
        error_o = error_of_o(problem, mode.o, mode.forward, stored="o" in mode.given)
        shape, of_table = None if mode.dbias is None else mode.dbias.shape, None
        if mode.drelative_bias is not None and relative_buckets is not None:
            of_table = functools.partial(onto_buckets, problem, relative_buckets, mode.drelative_bias.shape[1])
        parts = [
            _chunk_terms(problem, chunk, c, c64, do, dlse, mode, error_o, shape, of_table) for chunk in problem.chunks()
        ]
        tables = [part.table for part in parts if part.table is not None]
        sinks = [part.sink for part in parts if part.sink is not None]
        biases = [part.bias for part in parts if part.bias is not None]
        return cls(
            mode=mode,
            rows=joined_rows(problem, [part.rows for part in parts]),
            keys=functools.reduce(KeyTerms.join, (part.keys for part in parts)),
            bias=None if shape is None else joined_bias(problem, shape, biases),
            sink=functools.reduce(SinkTerms.join, sinks) if sinks else None,
            table=PairTerms.join(tables, add=True) if tables else None,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class _ChunkTerms:
    """Terms of one chunk: of its rows, of the sums over them, and terms of a bias, a sink and a relative bias."""

    rows: RowTerms
    keys: KeyTerms
    bias: PairTerms | None
    sink: SinkTerms | None
    table: PairTerms | None


def _chunk_terms(
    problem: BoundInputs, chunk: Chunk, c: Coefficients, c64: Coefficients, do: Tensor, dlse: Tensor | None, mode: Mode, error_o: Tensor | None,
    bias_shape: torch.Size | None, of_table: Callable[[Chunk], Callable[[Tensor], Tensor]] | None,
) -> _ChunkTerms:  # fmt: skip
    o, lse, forward, stored = mode.o, mode.lse, mode.forward, mode.given
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
        dq=problem.cut(mode.dq, chunk.rows), dq_core=cores.dq, dq_self=self_cores.dq, dq_trivial=t_dq, dq_exempt=over.dq.expand_as(t_dq),
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
    if mode.dsink is not None:
        errors = sink_errors(problem, c, chunk, g, s, cores.delta, B_L)
        own = sink_errors(problem, c64, chunk, g, s, self_cores.delta, E_L)
        largest = t_delta if g.dlse is None else t_delta + g.dlse.abs()
        of_sink = sink_terms(problem, chunk, errors, own, largest, over.delta)
    keys = KeyTerms(dk=of_dk, dv=of_dv, seen=chunk.seen, strict=strict)
    return _ChunkTerms(rows=rows, keys=keys, bias=of_bias, sink=of_sink, table=table)

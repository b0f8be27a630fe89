"""What one chunk of rows contributes to the bounds of the backward in one mode, and the sums over all chunks (docs/bounds.md, sections 8 to 12)."""

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from flashverify.numerics.bound_inputs import BoundInputs, Pairs
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import Coefficients
from flashverify.numerics.delta import error_of_o, stored_delta
from flashverify.numerics.exponential import exp_
from flashverify.numerics.gradients import CLAMP, Gradient, State, gradient_errors, gradient_of
from flashverify.numerics.learned import PairTerms, joined_bias, onto_bias
from flashverify.numerics.logits import logit_overflow
from flashverify.numerics.overflow import overflow_domain
from flashverify.numerics.relative import onto_buckets
from flashverify.numerics.result import BackwardBounds, ForwardBounds, exactly
from flashverify.numerics.sinks import SinkTerms, sink_errors, sink_terms
from flashverify.numerics.starting import Picked, Start, side_by_side
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
class _ChunkTerms:
    """Terms of one chunk: of its rows, of the sums over them, and terms of a bias, a sink and a relative bias."""

    rows: RowTerms
    keys: KeyTerms
    bias: PairTerms | None
    sink: SinkTerms | None
    table: PairTerms | None


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
        cls, problem: BoundInputs, c: Coefficients, c64: Coefficients, modes: Sequence[Mode], *,
        do: Tensor, dlse: Tensor | None, relative_buckets: Pairs | None,
    ) -> list[Self]:  # fmt: skip
        """The terms of some modes, computed side by side.

        Args:
            problem: The problem.
            c: Its coefficients.
            c64: Those of the oracle.
            modes: The modes; of several the pairs are held at once.
            do: As `backward_bounds` takes it.
            dlse: Likewise.
            relative_buckets: Likewise.
        """
        errors = [error_of_o(problem, mode.o, mode.forward, stored="o" in mode.given) for mode in modes]
        of_table, table = None, modes[0].drelative_bias
        if table is not None and relative_buckets is not None:
            of_table = functools.partial(onto_buckets, problem, relative_buckets, table.shape[1])
        chunks = [_chunk_terms(problem, chunk, c, c64, do, dlse, modes, errors, of_table) for chunk in problem.chunks()]
        return [cls._joined(problem, mode, parts) for mode, *parts in zip(modes, *chunks, strict=True)]

    @classmethod
    def _joined(cls, problem: BoundInputs, mode: Mode, parts: Sequence[_ChunkTerms]) -> Self:
        tables = [part.table for part in parts if part.table is not None]
        sinks = [part.sink for part in parts if part.sink is not None]
        biases = [part.bias for part in parts if part.bias is not None]
        return cls(
            mode=mode,
            rows=joined_rows(problem, [part.rows for part in parts]),
            keys=functools.reduce(KeyTerms.join, (part.keys for part in parts)),
            bias=None if mode.dbias is None else joined_bias(problem, mode.dbias.shape, biases),
            sink=functools.reduce(SinkTerms.join, sinks) if sinks else None,
            table=PairTerms.join(tables, add=True) if tables else None,
        )


def _chunk_terms(
    problem: BoundInputs, chunk: Chunk, c: Coefficients, c64: Coefficients, do: Tensor, dlse: Tensor | None,
    modes: Sequence[Mode], errors: Sequence[Tensor | None], of_table: Callable[[Chunk], Callable[[Tensor], Tensor]] | None,
) -> list[_ChunkTerms]:  # fmt: skip
    form, with_bias = problem.form, modes[0].dbias is not None
    prescale = form.prescale_fwd if form.p_from == "forward" else form.prescale_bwd
    g = gradient_of(problem, chunk, do, dlse)
    starts = [
        Start.of(
            problem, chunk, c, c64, o=mode.o, lse=mode.lse, error_o=error_o, forward=mode.forward, stored=mode.given
        )
        for mode, error_o in zip(modes, errors, strict=True)
    ]
    x = side_by_side(starts)
    delta = (g.do * x.o).sum(-1, keepdim=True)
    R = chunk.S - x.L
    P = exp_(R.clamp(max=CLAMP))
    X = (g.dp - delta if g.dlse is None else g.dp - (delta - g.dlse)).abs_()
    abs_o = x.o.abs()
    s = State(
        o=x.o, L=x.L, R=R, size_of_exponent=R.abs(), P=P, X=X, ds=P * X, delta=delta, Adelta=(g.ado * abs_o).sum(-1, keepdim=True), abs_o=abs_o
    )  # fmt: skip
    cores = gradient_errors(c, chunk, g, s, x.B_o, x.B_L, x.base, prescale)
    own = cores.without_errors()
    if not problem.directed:
        own = gradient_errors(c64, chunk, g, s, x.E_o, x.E_L, x.base_self, "none")
    over = overflow_domain(
        c, chunk, g, s, cores, logit_overflow(problem, chunk, prescale), x.lost_p, x.lost_ds,
        masked=form.masked_ds, with_pairs=with_bias or of_table is not None,
    )  # fmt: skip
    trivial = trivial_ranges(problem, c, chunk, g, s, x.B_o, x.underflow)
    returned = stored_delta(problem, c, c64, g.dlse, delta, cores.delta, own.delta, trivial.delta)
    onto = None if of_table is None else of_table(chunk)
    found = []
    for number, (mode, start) in enumerate(zip(modes, starts, strict=True)):
        parts: list[Any] = [s, cores, own, over, trivial, returned]
        if len(modes) > 1:
            parts = [Picked(part, number) for part in parts]
        found.append(_mode_terms(problem, chunk, c, c64, g, mode, start, parts, onto))
    return found


def _mode_terms(
    problem: BoundInputs, chunk: Chunk, c: Coefficients, c64: Coefficients, g: Gradient, mode: Mode, start: Start, parts: Sequence[Any],
    onto: Callable[[Tensor], Tensor] | None,
) -> _ChunkTerms:  # fmt: skip
    """The terms of one mode from what was computed of it."""
    s, cores, own, over, trivial, delta = parts
    rows = RowTerms(
        delta=delta.value, delta_bound=delta.bound, delta_self=delta.own, delta_trivial=delta.trivial, delta_exempt=over.delta,
        dq=problem.cut(mode.dq, chunk.rows), dq_core=cores.dq, dq_self=own.dq, dq_trivial=trivial.dq, dq_exempt=over.dq.expand_as(trivial.dq),
        empty=chunk.empty, dq_exact=chunk.empty & ~over.empty,
    )  # fmt: skip
    of_dk = KeySum(core=cores.dk, self_core=own.dk, trivial=trivial.dk, exempt=over.dk, hidden=over.hidden)
    of_dv = KeySum(core=cores.dv, self_core=own.dv, trivial=trivial.dv, exempt=over.dv, hidden=over.hidden_v)
    strict = None
    if "lse" in mode.given and predicts_dv(problem):
        value, core = predict_dv(problem, c, chunk, P=s.P, Pb=cores.Pb, ado=g.ado, do=g.do)
        strict = PredictedSum(value=value, core=core)
    of_bias = of_sink = table = None
    if mode.dbias is not None:
        of_bias = PairTerms.of(c, chunk, cores, own, over, trivial.X, onto_bias(problem, mode.dbias.shape))
    if onto is not None:
        table = PairTerms.of(c, chunk, cores, own, over, trivial.X, onto)
    if mode.dsink is not None:
        errors = sink_errors(problem, c, chunk, g, s, cores.delta, start.B_L)
        of_self = sink_errors(problem, c64, chunk, g, s, own.delta, start.E_L)
        largest = trivial.delta if g.dlse is None else trivial.delta + g.dlse.abs()
        of_sink = sink_terms(problem, chunk, errors, of_self, largest, over.delta)
    keys = KeyTerms(dk=of_dk, dv=of_dv, seen=chunk.seen, strict=strict)
    return _ChunkTerms(rows=rows, keys=keys, bias=of_bias, sink=of_sink, table=table)

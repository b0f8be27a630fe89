"""Worst-case bounds of the gradient of a sink, summed over batch and rows (docs/bounds.md, section 12)."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import OVERFLOW_FP32, Coefficients
from flashverify.numerics.gradients import CLAMP, Gradient, State
from flashverify.numerics.learned import learned_terms, sum_error

__all__ = ["SinkTerms", "sink_bound_terms", "sink_errors", "sink_terms"]


@dataclass(slots=True, kw_only=True, eq=False)
class SinkErrors:
    """Sums over batch and rows for one evaluation of the formulas, `[Hq]`.

    Attributes:
        error: Error of `P_s (dLSE - delta)`.
        size: Its largest magnitude.
        lost: Number of rows whose P_s may leave fp32.
    """

    error: Tensor
    size: Tensor
    lost: Tensor

    def join(self, other: Self) -> Self:
        """The sums with those of further rows."""
        return type(self)(error=self.error + other.error, size=self.size + other.size, lost=self.lost + other.lost)


@dataclass(slots=True, kw_only=True, eq=False)
class SinkTerms:
    """Sums over batch and rows, `[Hq]`.

    Attributes:
        of_bound: For B.
        of_self: For E64.
        trivial: Trivial range.
        exempt: Number of exempt rows.
        seen: Number of rows that see a key.
    """

    of_bound: SinkErrors
    of_self: SinkErrors
    trivial: Tensor
    exempt: Tensor
    seen: Tensor

    def join(self, other: Self) -> Self:
        """The sums with those of further rows."""
        return type(self)(
            of_bound=self.of_bound.join(other.of_bound),
            of_self=self.of_self.join(other.of_self),
            trivial=self.trivial + other.trivial,
            exempt=self.exempt + other.exempt,
            seen=self.seen + other.seen,
        )


def sink_errors(
    problem: BoundInputs, c: Coefficients, chunk: Chunk, g: Gradient, s: State, B_delta: Tensor, B_L: Tensor | None
) -> SinkErrors:
    """Errors of one chunk.

    P_s is recomputed like any weight of the backward; V = 0 leaves dP = 0.
    """
    assert chunk.sink is not None
    assert c.features is not None
    R = chunk.sink - s.L
    theta = chunk.sink.abs() * c.features.bias + R.abs() * c.gap + c.theta_bwd
    base = c.base_bwd_conditional if B_L is None else c.base_bwd
    theta = theta + s.L.abs() * base if B_L is None else theta + s.L.abs() * base + B_L
    Pe = (R + theta).clamp(max=CLAMP).exp()
    error, upper = Pe * -torch.expm1(-theta) + c.w, Pe + c.w
    X = (s.delta if g.dlse is None else s.delta - g.dlse).abs()
    E = B_delta if g.dlse is None else B_delta + g.dlse.abs() * (2 * c.u)
    error = error * X + upper * (E * (1 + 3 * c.u) + X * (3 * c.u)) + c.w
    exact = R.clamp(max=CLAMP).exp() * X
    error, size, lost = (
        _over_rows(problem, x.masked_fill(chunk.empty, 0)) for x in (error, exact + error, upper >= OVERFLOW_FP32)
    )
    return SinkErrors(error=error, size=size, lost=lost)


def sink_terms(
    problem: BoundInputs, chunk: Chunk, of_bound: SinkErrors, of_self: SinkErrors, largest: Tensor, exempt: Tensor
) -> SinkTerms:
    """Terms of one chunk, from the largest magnitude of `delta - dLSE` and the exempt rows, `[G, M, 1]`."""
    empty = chunk.empty
    trivial, lost, seen = (_over_rows(problem, x) for x in (largest.masked_fill(empty, 0.0), exempt & ~empty, ~empty))
    return SinkTerms(of_bound=of_bound, of_self=of_self, trivial=trivial, exempt=lost, seen=seen)


def _over_rows(problem: BoundInputs, x: Tensor) -> Tensor:
    """Sum of `x` `[G, M, 1]` over batch and rows, `[Hq]`."""
    B, Hkv, group = problem.q.shape[:3]
    return x.double().reshape(B, Hkv * group, -1).sum((0, 2))


def sink_bound_terms(
    problem: BoundInputs, c: Coefficients, c64: Coefficients, y: Tensor, terms: SinkTerms
) -> tuple[Tensor, ...]:
    """What `finish` takes of a sink's gradient `[Hq]`, fp32, from the terms of all chunks: `sum B + (n - 1) u sum |P_s X|`, whatever the order of the sum.

    Args:
        problem: The problem.
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient.
        terms: Of all chunks.

    Returns:
        Tensors in that shape. A head whose rows see nothing is exact.
    """
    bound, own = terms.of_bound, terms.of_self
    exempt = terms.exempt + bound.lost + own.lost
    n = problem.q.shape[0] * problem.shape.Sq
    core = bound.error + bound.size * sum_error(n, c.u) + n * c.w
    core64 = own.error + own.size * sum_error(n, c64.u) + n * c64.w
    single = FORMATS["fp32"]
    return learned_terms(
        y, core, core64, exact=terms.seen == 0, exempt=(exempt > 0) | (bound.size >= OVERFLOW_FP32), trivial=terms.trivial + 2 * n * c.w + 2 * single.eta,
        out=single,
    )  # fmt: skip

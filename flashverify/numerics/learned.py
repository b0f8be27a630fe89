"""Worst-case bounds of the gradients of a bias and of a sink, summed over what each is shared by (docs/bounds.md, section 12)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from flashverify.formats import FORMATS, Format
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import OVERFLOW_FP32, Coefficients
from flashverify.numerics.gradients import CLAMP, Cores, Gradient, State
from flashverify.numerics.overflow import Exempt
from flashverify.numerics.result import OutputBound, finish

__all__ = ["BiasTerms", "SinkTerms", "bias_bound", "bias_terms", "sink_bound", "sink_errors", "sink_terms"]


def _four(shape: torch.Size) -> torch.Size:
    return torch.Size((1,) * (4 - len(shape)) + tuple(shape))


@dataclass(slots=True, kw_only=True, eq=False)
class BiasTerms:
    """Sums over the pairs that share an element of a bias, in its shape of four axes; of one chunk its rows alone.

    Attributes:
        error: Error of dS, for B.
        self_error: The same for E64.
        size: Largest |dS|.
        trivial: Largest |dS| with weights in [0, 1].
        exempt: Number of pairs at which dS may not be finite.
        visible: Number of visible pairs.
    """

    error: Tensor
    self_error: Tensor
    size: Tensor
    trivial: Tensor
    exempt: Tensor
    visible: Tensor

    @classmethod
    def join(cls, problem: BoundInputs, shape: torch.Size, parts: Sequence[Self]) -> Self:
        """Unites the chunks: rows one after the other, or added where the bias has one row for all."""
        add = _four(shape)[2] == 1 and problem.shape.Sq != 1

        def joined(name: str) -> Tensor:
            chunks = [getattr(part, name) for part in parts]
            return torch.stack(chunks).sum(0) if add else torch.cat(chunks, 2)

        return cls(**{field.name: joined(field.name) for field in fields(cls)})


def bias_terms(
    problem: BoundInputs, shape: torch.Size, chunk: Chunk, cores: Cores, self_cores: Cores, over: Exempt, X: Tensor
) -> BiasTerms:
    """Terms of one chunk.

    Args:
        problem: The problem.
        shape: Of the bias, which broadcasts to `[B, Hq, Sq, Sk]`.
        chunk: The chunk.
        cores: Its errors for B.
        self_cores: Its errors for E64.
        over: Its overflow domain.
        X: `[G, M, N]` largest |dS| with weights in [0, 1].
    """
    B, Hkv, group = problem.q.shape[:3]
    shape = _four(shape)

    def summed(x: Tensor) -> Tensor:
        x = x.reshape(B, Hkv * group, -1, problem.shape.Sk)
        shared = [axis for axis in range(4) if shape[axis] == 1 and x.shape[axis] != 1]
        return x.sum(shared, keepdim=True) if shared else x

    return BiasTerms(
        error=summed(cores.ds_error),
        self_error=summed(self_cores.ds_error),
        size=summed(cores.ds_wide),
        trivial=summed(X),
        exempt=summed(over.pairs.double()),
        visible=summed(torch.ones_like(X) if chunk.vis is None else chunk.vis),
    )


def bias_bound(problem: BoundInputs, c: Coefficients, c64: Coefficients, y: Tensor, terms: BiasTerms) -> OutputBound:
    """The bound of a bias's gradient from its joined terms: `sum B_dS + (n - 1) u sum |dS|`, then the rounding of the output.

    Args:
        problem: The problem.
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient, in the bias's shape.
        terms: Of all chunks.

    Returns:
        The bound, in the bias's shape. Elements that no visible pair reaches are exact.
    """
    B, Hkv, group, Sq = problem.q.shape[:4]
    n = B * Hkv * group * Sq * problem.shape.Sk // max(1, y.numel())
    size, exempt = terms.size.reshape(y.shape), terms.exempt.reshape(y.shape)
    core = terms.error.reshape(y.shape) + size * (_sum(n, c.u) + c.u_dbias) + n * (c.w + c.eta_dbias)
    core64 = terms.self_error.reshape(y.shape) + size * _sum(n, c64.u) + n * c64.w
    out = FORMATS[problem.form.grad_dtype or problem.dtype]
    return _output(
        y, core, core64, exact=(terms.visible.reshape(y.shape) == 0) & (exempt == 0), exempt=(exempt > 0) | (size >= OVERFLOW_FP32),
        trivial=terms.trivial.reshape(y.shape) + 2 * n * (c.w + c.eta_dbias) + 2 * c.eta_grad, out=out,
    )  # fmt: skip


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
        over_rows(problem, x.masked_fill(chunk.empty, 0)) for x in (error, exact + error, upper >= OVERFLOW_FP32)
    )
    return SinkErrors(error=error, size=size, lost=lost)


def sink_terms(
    problem: BoundInputs, chunk: Chunk, of_bound: SinkErrors, of_self: SinkErrors, largest: Tensor, exempt: Tensor
) -> SinkTerms:
    """Terms of one chunk, from the largest magnitude of `delta - dLSE` and the exempt rows, `[G, M, 1]`."""
    empty = chunk.empty
    trivial, lost, seen = (over_rows(problem, x) for x in (largest.masked_fill(empty, 0.0), exempt & ~empty, ~empty))
    return SinkTerms(of_bound=of_bound, of_self=of_self, trivial=trivial, exempt=lost, seen=seen)


def over_rows(problem: BoundInputs, x: Tensor) -> Tensor:
    """Sum of `x` `[G, M, 1]` over batch and rows, `[Hq]`."""
    B, Hkv, group = problem.q.shape[:3]
    return x.double().reshape(B, Hkv * group, -1).sum((0, 2))


def sink_bound(problem: BoundInputs, c: Coefficients, c64: Coefficients, y: Tensor, terms: SinkTerms) -> OutputBound:
    """The bound of a sink's gradient `[Hq]`, fp32, from the terms of all chunks: `sum B + (n - 1) u sum |P_s X|`, whatever the order of the sum.

    Args:
        problem: The problem.
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient.
        terms: Of all chunks.

    Returns:
        The bound. A head whose rows see nothing is exact.
    """
    bound, own = terms.of_bound, terms.of_self
    exempt = terms.exempt + bound.lost + own.lost
    n = problem.q.shape[0] * problem.shape.Sq
    core = bound.error + bound.size * _sum(n, c.u) + n * c.w
    core64 = own.error + own.size * _sum(n, c64.u) + n * c64.w
    single = FORMATS["fp32"]
    return _output(
        y, core, core64, exact=terms.seen == 0, exempt=(exempt > 0) | (bound.size >= OVERFLOW_FP32), trivial=terms.trivial + 2 * n * c.w + 2 * single.eta,
        out=single,
    )  # fmt: skip


def _sum(n: int, u: float) -> float:
    """Relative error of a sum of n terms in any order."""
    t = max(n - 1, 0) * u
    return t / (1 - min(t, 0.5))


def _output(
    y: Tensor, core: Tensor, core64: Tensor, *, exact: Tensor, exempt: Tensor, trivial: Tensor, out: Format
) -> OutputBound:
    size = y.abs().double()
    after = core + (size + core) * out.u + out.eta
    after64 = core64 * (1 + 2.0**-52) + size * 2.0**-53
    return finish(y.double(), core, after, after64, exact=exact, exempt=exempt, trivial=trivial, out=out)

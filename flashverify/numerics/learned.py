"""Worst-case bounds of the gradients of a bias and of a sink, summed over what each is shared by (docs/bounds.md, section 12)."""

import torch
from torch import Tensor

from flashverify.formats import FORMATS, Format
from flashverify.numerics.chunk import Chunk
from flashverify.numerics.coefficients import OVERFLOW_FP32, Coefficients
from flashverify.numerics.gradients import CLAMP, Cores, Gradient, State
from flashverify.numerics.overflow import Exempt
from flashverify.numerics.problem import Problem
from flashverify.numerics.result import OutputBound, finish

__all__ = ["bias_bound", "bias_terms", "join_bias", "sink_bound", "sink_terms"]


def _four(shape: torch.Size) -> torch.Size:
    return torch.Size((1,) * (4 - len(shape)) + tuple(shape))


def bias_terms(
    problem: Problem, shape: torch.Size, chunk: Chunk, cores: Cores, self_cores: Cores, over: Exempt, X: Tensor
) -> list[Tensor]:
    """Terms of one chunk, each summed to the bias's shape: errors of dS for B and E64, largest |dS|, trivial range, exempt and visible pairs.

    Args:
        problem: The problem.
        shape: Of the bias, which broadcasts to `[B, Hq, Sq, Sk]`.
        chunk: The chunk.
        cores: Its errors for B.
        self_cores: Its errors for E64.
        over: Its overflow domain.
        X: `[G, M, N]` largest |dS| with weights in [0, 1].

    Returns:
        Six tensors of the bias's shape, its rows those of the chunk.
    """
    B, Hkv, group = problem.q.shape[:3]
    exempt = over.pairs.double()
    visible = torch.ones_like(X) if chunk.vis is None else chunk.vis
    shape = _four(shape)
    terms = []
    for x in (cores.ds_error, self_cores.ds_error, cores.ds_wide, X, exempt, visible):
        x = x.reshape(B, Hkv * group, -1, problem.shape.Sk)
        shared = [axis for axis in range(4) if shape[axis] == 1 and x.shape[axis] != 1]
        terms.append(x.sum(shared, keepdim=True) if shared else x)
    return terms


def join_bias(problem: Problem, shape: torch.Size, parts: list[list[Tensor]]) -> list[Tensor]:
    """Unite the terms of all chunks: rows one after the other, or added where the bias has one row for all."""
    if _four(shape)[2] == 1 and problem.shape.Sq != 1:
        return [torch.stack(x).sum(0) for x in zip(*parts, strict=True)]
    return [torch.cat(x, 2) for x in zip(*parts, strict=True)]


def bias_bound(problem: Problem, c: Coefficients, c64: Coefficients, y: Tensor, terms: list[Tensor]) -> OutputBound:
    """The bound of a bias's gradient from its joined terms: `sum B_dS + (n - 1) u sum |dS|`, then the rounding of the output.

    Args:
        problem: The problem.
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient, in the bias's shape.
        terms: From `join_bias`.

    Returns:
        The bound, in the bias's shape. Elements that no visible pair reaches are exact.
    """
    error, error64, size, X, exempt, visible = (x.reshape(y.shape) for x in terms)
    B, Hkv, group, Sq = problem.q.shape[:4]
    n = B * Hkv * group * Sq * problem.shape.Sk // max(1, y.numel())
    core = error + size * (_sum(n, c.u) + c.u_dbias) + n * (c.w + c.eta_dbias)
    core64 = error64 + size * _sum(n, c64.u) + n * c64.w
    out = FORMATS[problem.form.grad_dtype or problem.dtype]
    return _output(
        y, core, core64, exact=(visible == 0) & (exempt == 0), exempt=(exempt > 0) | (size >= OVERFLOW_FP32),
        trivial=X + 2 * n * (c.w + c.eta_dbias) + 2 * c.eta_grad, out=out,
    )  # fmt: skip


def sink_terms(
    problem: Problem, c: Coefficients, chunk: Chunk, g: Gradient, s: State, B_delta: Tensor, B_L: Tensor | None
) -> list[Tensor]:
    """Terms of one chunk, summed over batch and rows to `[Hq]`: error of `P_s (dLSE - delta)`, its largest magnitude, and rows whose P_s may leave fp32.

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
    lost = upper >= OVERFLOW_FP32
    return [over_rows(problem, x.masked_fill(chunk.empty, 0)) for x in (error, exact + error, lost)]


def over_rows(problem: Problem, x: Tensor) -> Tensor:
    """Sum of `x` `[G, M, 1]` over batch and rows, `[Hq]`."""
    B, Hkv, group = problem.q.shape[:3]
    return x.double().reshape(B, Hkv * group, -1).sum((0, 2))


def sink_bound(problem: Problem, c: Coefficients, c64: Coefficients, y: Tensor, terms: list[Tensor]) -> OutputBound:
    """The bound of a sink's gradient `[Hq]`, fp32, from the terms of all chunks: `sum B + (n - 1) u sum |P_s X|`, whatever the order of the sum.

    Args:
        problem: The problem.
        c: Coefficients of the subject.
        c64: Coefficients of the oracle.
        y: The oracle's gradient.
        terms: Error, largest magnitude and lost rows for B and for E64, trivial range, exempt rows, rows that see a key.

    Returns:
        The bound. A head whose rows see nothing is exact.
    """
    error, size, lost, error64, size64, lost64, trivial, exempt, seen = terms
    exempt = exempt + lost + lost64
    n = problem.q.shape[0] * problem.shape.Sq
    core = error + size * _sum(n, c.u) + n * c.w
    core64 = error64 + size64 * _sum(n, c64.u) + n * c64.w
    single = FORMATS["fp32"]
    return _output(
        y, core, core64, exact=seen == 0, exempt=(exempt > 0) | (size >= OVERFLOW_FP32), trivial=trivial + 2 * n * c.w + 2 * single.eta,
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

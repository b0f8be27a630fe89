"""Many kernels at once that take tiles in ascending order and err at each step by the most that is allowed, in a direction of the step's own; and a search for the worst.

float64 holds every error apart: a kernel here rounds nothing but its weights. It shares nothing with the bounds.
"""

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from flashverify.numerics import BoundInputs, Form, forward_bounds
from flashverify_oracles import float64

U = 2.0**-24
EX2 = 5 * U
LOG = 2.0**-22 * math.log(2.0)


@dataclass(kw_only=True)
class Kernels:
    """B kernels of one row each: values and, in [-1, 1], the direction of every error.

    Attributes:
        q, k, v: `[B, 1, 1, D]`, `[B, 1, N, D]`, `[B, 1, N, Dv]` in the dtype.
        logit, exponent, product: `[B, N]`, of a logit, of its exponential, and of the addition of its product with V.
        rescale, total: `[B, T]`, of a rescale and of its product with the accumulator, and of the row sum after a tile.
        end: `[B, 2]`, of the logarithm and of the division.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    logit: Tensor
    exponent: Tensor
    product: Tensor
    rescale: Tensor
    total: Tensor
    end: Tensor


def run(x: Kernels, seen: Tensor, block: int, sink: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """O `[B, Dv]`, not rounded, and the natural LSE `[B]`, of the keys `seen` `[N]`."""
    dtype = x.v.dtype
    x = Kernels(**{f.name: getattr(x, f.name).double() for f in fields(x)})
    q, k, v = x.q[:, 0], x.k[:, 0], x.v[:, 0]
    exact, size = (q * k).sum(-1), (q * k).abs().sum(-1)
    s = exact + x.logit * (q.shape[-1] * U * size + 2 * U * exact.abs())
    s = torch.where(seen, s, -math.inf)
    m, row = s.new_full((len(s),), -math.inf), s.new_zeros(len(s))
    acc = v.new_zeros(len(s), v.shape[-1])

    def exponential(t: Tensor, error: Tensor) -> Tensor:
        found = torch.exp(t * (1 + U * error)) * (1 + EX2 * error)
        return torch.where(t == 0, 1.0, found)

    def rescaled(m: Tensor, new: Tensor, row: Tensor, acc: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        alpha = torch.where(new == m, 1.0, exponential((m - new).nan_to_num(0.0, 0.0, -700.0), error))
        round_off = torch.where(new == m, 1.0, 1 + U * error)
        return row * alpha * round_off, acc * (alpha * round_off)[:, None]

    for tile, start in enumerate(range(0, s.shape[-1], block)):
        keys = slice(start, start + block)
        if not bool(seen[keys].any()):
            continue
        new = torch.maximum(m, s[:, keys].amax(-1))
        row, acc = rescaled(m, new, row, acc, x.rescale[:, tile])
        m = new
        p = exponential(s[:, keys] - m[:, None], x.exponent[:, keys])
        weights = p.to(torch.float32).to(dtype).double() if dtype != torch.float32 else p
        row = (row + p.sum(-1) * (1 + (block - 1) * U * x.total[:, tile])) * (1 + U * x.total[:, tile])
        for at in range(start, min(start + block, s.shape[-1])):
            if bool(seen[at]):
                step = (weights[:, at - start, None] * v[:, at]) + acc
                acc = step * (1 + U * x.product[:, at, None])
    if sink is not None:
        new = torch.maximum(m, sink)
        row, acc = rescaled(m, new, row, acc, x.end[:, 0])
        m, row = new, (row + exponential(sink - new, x.end[:, 0])) * (1 + U * x.end[:, 0])
    o = acc / row[:, None] * (1 + 8 * U * x.end[:, 1:])
    log = torch.log(row)
    return o, m + log + x.end[:, 0] * LOG * (log / math.log(2.0)).abs().clamp(min=1.0)


def ratios(x: Kernels, seen: Tensor, block: int, sink: Tensor | None = None) -> dict[str, Tensor]:
    """Of each kernel `[B]`, the largest error over its bound: of the LSE, of O and, in 16 bits, of O about the predicted one."""
    form = Form(block_n=block, key_order="ascending", gap_c=1.0, kappa=2.0, architecture="ieee", out_dtype="fp32")
    asked = {"scale": 1.0, "visible": seen.expand(1, len(seen)), "sink": sink}
    truth = float64.forward(x.q, x.k, x.v, **asked)  # type: ignore[arg-type]
    problem = BoundInputs.of(x.q, x.k, x.v, dtype=x.v.dtype, form=form, **asked)  # type: ignore[arg-type]
    found = forward_bounds(problem, truth.o, truth.lse)
    o, lse = run(x, seen, block, sink)

    def worst(value: Tensor, expected: Tensor, bound: Tensor) -> Tensor:
        return ((value.reshape(expected.shape) - expected).abs() / bound).flatten(1).amax(-1)

    measured = {"lse": worst(lse, truth.lse, found.lse.total), "o": worst(o, truth.o, found.o.total)}
    if found.strict is not None:
        predicted = torch.where(found.strict.sharper, found.strict.value, math.nan)
        measured["o!"] = worst(o, predicted, found.strict.bound.total).nan_to_num(0.0)
    return measured


def climb(
    x: Kernels, of: str, seen: Tensor, block: int, sink: Tensor | None, steps: int, gen: torch.Generator
) -> float:
    """The largest ratio of one output that a search by random changes finds; every step tries one change of each kernel.

    Raises:
        AssertionError: a ratio of any output exceeds 1.
    """
    best = ratios(x, seen, block, sink)[of]
    for step in range(steps):
        tried = changed(x, step, gen)
        measured = ratios(tried, seen, block, sink)
        for name, ratio in measured.items():
            assert float(ratio.max()) <= 1, (name, float(ratio.max()))
        better = measured[of] > best
        best = torch.where(better, measured[of], best)
        x = Kernels(**{
            f.name: torch.where(better.view(-1, *[1] * (getattr(x, f.name).ndim - 1)), getattr(tried, f.name), getattr(x, f.name))
            for f in fields(x)
        })  # fmt: skip
    return float(best.max())


def changed(x: Kernels, step: int, gen: torch.Generator) -> Kernels:
    """Each kernel with one change: some directions turned round, or some values moved."""
    name = ("product", "k", "exponent", "v", "rescale", "logit", "total", "end")[step % 8]
    old = getattr(x, name)
    here = torch.rand(old.shape, generator=gen) < 0.1
    if name in ("k", "v"):
        noise = torch.randn(old.shape, generator=gen) * old.abs().double().mean()
        return replace(x, **{name: torch.where(here, (old.double() + noise).to(old.dtype), old)})
    return replace(x, **{name: torch.where(here, -old, old)})

"""The absolute error of a logit, from the dot product through softcap and biases, and of a sink (docs/bounds.md, section 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from flashverify.formats import format_of
from flashverify.numerics.bound_inputs import BoundInputs
from flashverify.numerics.chunk import Chunk, Parts
from flashverify.numerics.coefficients import LOG2E, OVERFLOW_FP32, Coefficients
from flashverify.numerics.features import FeatureCoefficients
from flashverify.numerics.flushing import flushed_products
from flashverify.numerics.truncation import inexact_dots

__all__ = ["TanhError", "largest_logit", "logit_error", "logit_overflow", "sink_error"]


@dataclass(slots=True, kw_only=True)
class TanhError:
    """Absolute errors of the computed `tanh(t / cap)` and of its argument, float64 `[G, M, N]`."""

    value: Tensor
    argument: Tensor


def logit_error(
    c: Coefficients, chunk: Chunk, prescale: str, *, backward: bool, shared: bool = False
) -> tuple[Tensor, Tensor | float, TanhError | None]:
    """B_S, natural units, without its gap term.

    `B_t = D(d) |scale| sum |q| |k| + kappa u |t| + d w |scale|`, `2w sum |q| |k|` where the scale is subnormal, what flushed operands lose, and for a prescaled operand `+ u_x |scale| sum |q| |k| + eta_x sum |other| / log2 e`;
    then through softcap and biases.

    Args:
        c: The coefficients.
        chunk: The chunk.
        prescale: The operand that is prescaled, `"none"`, `"q"`, `"k"`.
        backward: Of the backward's logits.
        shared: B_S is that of the chunk, which nobody may change.

    Returns:
        B_S `[G, M, N]`, to be enlarged in place unless it is `shared`; what is still to be added to it, `[G, M, 1]` or a number; the errors of the tanh, or None
        without a softcap. The chunk keeps them for the next caller.
    """
    alike = c.s_dot_fwd == c.s_dot_bwd and c.prescale_fwd == c.prescale_bwd and not c.s_max
    name = f"logit error {c.u} {prescale} {backward and not alike}"
    known = chunk.cache.get(name)
    if not isinstance(known, tuple) or known[0] is not c:
        known = chunk.cache[name] = c, *_logit_error(c, chunk, prescale, backward=backward)
    theta, rest, tanh_error = known[1:]
    return theta if shared else theta.clone(), rest, tanh_error


def _logit_error(
    c: Coefficients, chunk: Chunk, prescale: str, *, backward: bool
) -> tuple[Tensor, Tensor | float, TanhError | None]:
    parts, scales = chunk.parts, chunk.quantised if c.quantised else None
    theta = torch.mul(chunk.A, c.s_dot_bwd if backward else c.s_dot_fwd)
    if c.truncation is not None:
        theta.mul_(inexact_dots(c.truncation, chunk.q, chunk.k, chunk.A))
    theta.add_(chunk.abs_s if parts is None else parts.size, alpha=c.s_abs)
    eta = c.prescale_bwd if backward else c.prescale_fwd
    if prescale == "q":
        theta.add_((chunk.ak.sum(-1) * eta).unsqueeze(-2))
    if c.s_flush and (flushed := flushed_products(chunk.aq, chunk.small_q, chunk.ak, chunk.small_k)) is not None:
        theta.add_(flushed, alpha=c.s_flush)
    if c.s_mean:
        theta.add_(_smoothed(chunk, chunk.aq) * c.s_mean + chunk.aq.sum(-1, keepdim=True) * c.s_mean_eta)
        if chunk.small_q is not None:
            theta.add_(_smoothed(chunk, chunk.small_q), alpha=c.s_flush)
    if scales is not None:
        whole = 1 + c.s_dot_fwd / c.s_scale + c.s_abs if c.s_scale else 1.0
        theta.add_(chunk.aq @ scales.k.mT, alpha=c.s_scale * whole).add_(scales.logit * c.s_scale)
        if scales.q is not None:
            theta.add_(scales.q @ (chunk.ak + scales.k).mT, alpha=c.s_scale * whole)
    offset: Tensor | float = chunk.aq.sum(-1, keepdim=True) * eta + c.s_const if prescale == "k" else c.s_const
    tanh_error = None
    if parts is not None:
        assert c.features is not None
        theta, tanh_error = _through(c, c.features, chunk, parts, theta.add_(offset))
        offset = 0.0
    if c.s_max and not backward:
        theta.add_(torch.maximum(chunk.abs_s, chunk.m.abs()), alpha=c.s_max)
    return theta, offset, tanh_error


def _through(
    c: Coefficients, x: FeatureCoefficients, chunk: Chunk, parts: Parts, error: Tensor
) -> tuple[Tensor, TanhError | None]:
    """Carry the error of t through softcap and biases: B_S and the errors of the tanh.

    The slope of tanh falls with |t|, so the largest change of the capped logit over `[t - B_t, t + B_t]` is that towards 0, and with
    `tanh x - tanh y = tanh(x - y) (1 - tanh x tanh y)` nothing cancels. A bias is rounded by itself, and the sum after each term.
    """
    tanh_error = None
    if parts.cap is not None and parts.tanh is not None:
        cap = parts.cap
        error.add_(parts.size, alpha=x.cap_in).add_(chunk.A, alpha=x.cap_dot).add_(x.cap_const)
        argument = error / cap
        inner = torch.tanh((parts.size - error).div_(cap)).mul_(parts.tanh)
        value = torch.tanh(argument).mul_(1 - inner).mul_(1 + x.cap_rel + 2.0**-18)
        value.add_(parts.tanh, alpha=x.cap_rel).add_(x.cap_flat)
        tanh_error = TanhError(value=value, argument=argument)
        error = (value * (cap * (1 + c.s_abs))).add_(parts.capped, alpha=c.s_abs).add_(x.cap_const)
    if parts.bias is not None:
        error.mul_(1 + x.add).add_(parts.bias, alpha=x.bias).add_(chunk.abs_s, alpha=x.add).add_(x.bias_const)
        more = x.add * (parts.biases - 1)
        if more:
            error.add_(parts.capped, alpha=more).add_(parts.bias, alpha=more)
    return error, tanh_error


def sink_error(c: Coefficients, chunk: Chunk, sink: Tensor) -> Tensor:
    """Error of the exponent of a sink in the forward, without the constant part of theta: `[G, M, 1]`.

    A sink is converted to base 2 like a bias; its exponent has the gap, and under split-KV the stored LSE, of any column.
    """
    assert c.features is not None
    size = sink.abs()
    both = torch.maximum(size, chunk.m.abs())
    gap = (chunk.m - sink).clamp(min=0.0)
    return size * c.features.bias + gap * (c.gap * (1 + c.merges if c.split else 1)) + both * (c.s_max + c.split)


def largest_logit(problem: BoundInputs, chunk: Chunk) -> Tensor:
    """The largest magnitude of `log sum exp S - log n` `[G, M, 1]`: `max |t|`, or the cap, with `|max bias|` and the sink."""
    largest = _largest_product(chunk) * abs(problem.scale)
    parts = chunk.parts
    if parts is not None and parts.cap is not None:
        largest = largest.clamp(max=parts.cap)
    if parts is not None and parts.bias is not None:
        # S - capped <= bias <= S + capped, and |S - bias| <= largest.
        largest = 2 * largest + chunk.m.abs()
    return largest if chunk.sink is None else torch.maximum(largest, chunk.sink.abs())


def logit_overflow(problem: BoundInputs, chunk: Chunk, prescale: str) -> Tensor:
    """Rows `[G, M, 1]` in which a logit, one of its parts, or the cast of a prescaled operand may leave its format; the chunk keeps them."""
    name = f"logit overflow {prescale} {problem.form.k_smoothed} {problem.form.s_dtype}"
    known = chunk.cache.get(name)
    if not isinstance(known, Tensor):
        known = chunk.cache[name] = _logit_overflow(problem, chunk, prescale)
    return known


def _logit_overflow(problem: BoundInputs, chunk: Chunk, prescale: str) -> Tensor:
    sc = abs(problem.scale)
    largest = _largest_product(chunk) if chunk.A.shape[-1] else torch.zeros_like(chunk.n)
    over = largest * max(1.0, sc * LOG2E) >= OVERFLOW_FP32
    form, x = problem.form, format_of(problem.dtype)
    if form.k_smoothed:  # the difference from the mean is cast
        largest = largest + _smoothed(chunk, chunk.aq)
        wide = 2 * chunk.ak.flatten(1).amax(-1) if chunk.ak.numel() else chunk.ak.new_zeros(len(chunk.ak))
        over = over | (wide >= min(x.max, OVERFLOW_FP32) / (1 + x.u))[:, None, None]
    if form.s_dtype == "input" and x.narrow:
        limit = min(x.max, OVERFLOW_FP32) / (1 + x.u) ** 3
        largest_s = torch.maximum(largest * max(1.0, sc), chunk.m.abs() + _largest_bias(chunk))
        over = over | (largest_s >= limit)
    if problem.features is not None:
        over = over | _part_overflow(chunk, largest, sc)
    if prescale != "none":
        limit = min(format_of(problem.dtype).max, OVERFLOW_FP32) / (1 + format_of(problem.dtype).u)
        largest_q = chunk.aq.amax(-1, keepdim=True) if chunk.aq.shape[-1] else torch.zeros_like(chunk.n)
        if prescale == "q":
            over = over | (largest_q * (sc * LOG2E) >= limit)
        elif chunk.ak.shape[-1]:
            keys = (chunk.ak.amax(-1, keepdim=True) * (sc * LOG2E) >= limit).double()
            over = over | (chunk.over_keys(keys) > 0)
    return over & chunk.live


def _largest_product(chunk: Chunk) -> Tensor:
    """The largest `sum |q| |k|` of a row, `[G, M, 1]`; the chunk keeps it."""
    known = chunk.cache.get("largest product")
    if not isinstance(known, Tensor):
        known = chunk.cache["largest product"] = chunk.A.amax(-1, keepdim=True)
    return known


def _smoothed(chunk: Chunk, aq: Tensor) -> Tensor:
    """`sum |q| max_j |k|` over the keys that any row sees, `[G, M, 1]`, of |q| or a part of it: the product with any mean of K is no larger."""
    if not chunk.ak.shape[-2]:
        return torch.zeros_like(chunk.n)
    return aq @ chunk.ak.amax(-2).unsqueeze(-1)


def _largest_bias(chunk: Chunk) -> Tensor | float:
    """The largest magnitude of the biases of a row, `[G, M, 1]`."""
    return 0.0 if chunk.parts is None or chunk.parts.bias is None else chunk.parts.bias.amax(-1, keepdim=True)


def _part_overflow(chunk: Chunk, largest: Tensor, sc: float) -> Tensor:
    """Rows in which the argument of tanh, a positive bias, its sum with the dot, a sink, or the largest logit may leave fp32, in base 2.

    A logit that falls below the range has the weight 0, which is right, as long as the largest of its row does not.
    """
    total, over = largest * sc, torch.zeros_like(chunk.empty)
    parts = chunk.parts
    if parts is not None and parts.cap is not None:
        slope = 2 * LOG2E * sc / parts.cap
        over = over | (largest.clamp(min=1.0) * slope >= OVERFLOW_FP32)
        total = total.clamp(max=parts.cap)
        over = over | (parts.cap * 2 * LOG2E >= OVERFLOW_FP32)
    if parts is not None and parts.bias is not None:
        over = over | ((total + parts.rise) * LOG2E >= OVERFLOW_FP32) | (chunk.m * LOG2E <= -OVERFLOW_FP32)
    if chunk.sink is not None:
        over = over | (chunk.sink * LOG2E >= OVERFLOW_FP32) | (chunk.m * LOG2E <= -OVERFLOW_FP32)
    return over

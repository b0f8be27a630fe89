"""What scales and codes add to the errors of a kernel whose K and V are quantised, and weights in fp8 (docs/bounds.md, section 23)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.formats import Format
    from flashverify.numerics.chunk import Chunk
    from flashverify.numerics.form import Form

__all__ = [
    "FP8_LOGITS",
    "FP8_WEIGHTS",
    "WEIGHT_FORMATS",
    "QuantisedErrors",
    "WeightFormat",
    "aligned_codes",
    "quantised_errors",
]

FP8_WEIGHTS, FP8_LOGITS = ("fp8_pv", "fp8"), ("fp8_qk", "fp8")
"""The values of `Form.products` under which the product with V, and that of Q and K, takes fp8 operands."""
_U, _W = FORMATS["fp32"].u, FORMATS["fp32"].min_normal
_OVERFLOW = 2.0**127
_LARGEST_CODE = 2.0**16


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A format of 8 bits that weights are cast to before their product with V.

    Attributes:
        library: Its name in torch.
        u: Largest relative error of a cast, `2^-p / (1 + 2^-p)` with p bits of the significand: that of a tie above a power of two.
        eta: Half the smallest subnormal number.
        min_normal: Smallest normal number.
        max: Largest finite value, to which larger ones are cut.
    """

    library: str
    u: float
    eta: float
    min_normal: float
    max: float


WEIGHT_FORMATS = {
    "e4m3": WeightFormat(library="float8_e4m3fn", u=1 / 17, eta=2.0**-10, min_normal=2.0**-6, max=448.0),
    "e5m2": WeightFormat(library="float8_e5m2", u=1 / 9, eta=2.0**-17, min_normal=2.0**-14, max=57344.0),
}


@dataclass(slots=True, kw_only=True, eq=False)
class QuantisedErrors:
    """What one chunk gets from the scales of its K and V; float64.

    Attributes:
        q: `[G, M, D]` error of each element of a q in codes as the product takes it, or None.
        k: `[G, N, D]` likewise of K; v `[G, N, Dv]`.
        logit: `[G, 1 or M, N]` what underflow adds to a logit beside that, before the scale of the softmax.
        unit_v: `[G, N, Dv]` |V|, or its codes where those are larger and the weights carry the scale: what a weight's underflow multiplies.
        most: `[G, N, 1]` the scale of V or 1, the larger: what a product's underflow is multiplied by.
        bad: `[G, M, 1]` bool, rows that see a key whose operand or product may leave its format.
        bad_v: `[G, M, 1]` bool, rows that see a weight which may, and all rows of a V that may.
    """

    q: Tensor | None
    k: Tensor
    v: Tensor
    logit: Tensor
    unit_v: Tensor
    most: Tensor
    bad: Tensor
    bad_v: Tensor


def _code(x: Tensor, scale: Tensor) -> Tensor:
    """|code - zero| of each element."""
    return torch.where(scale > 0, x.abs() / torch.where(scale > 0, scale, 1.0), 0.0)


def _operand_error(
    x: Tensor, scale: Tensor, form: Form, dtype: Format, softmax_scale: float, others: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The error of each element, and which keys `[G, N, 1]` may leave their format, under every way that the form may stand for.

    Args:
        x: The values.
        scale: Their scales.
        form: The form.
        dtype: Of the inputs.
        softmax_scale: What a folded scale is multiplied by.
        others: Scales of the other operand, by which it may be multiplied as well.
    """
    size, kinds = x.abs(), _kinds(form)
    code = _code(x, scale)
    # fp32 may flush the scale or its product with the code.
    lost = torch.where((scale < 2 * _W) | (size < 2 * _W), size, 0.0)
    error, over = torch.zeros_like(size), torch.zeros_like(scale, dtype=torch.bool)
    limit = min(dtype.max, _OVERFLOW) / (1 + 4 * dtype.u)
    if "operand" in kinds:
        made = size * (2 * _U) + lost
        if dtype.narrow:
            made = made + (size + made) * dtype.u + dtype.eta * (size > 0)
        error = torch.maximum(error, made)
        over = over | ((size + made).amax(-1, keepdim=True) >= limit)
    if "narrow" in kinds and dtype.narrow:
        of_scale = scale * dtype.u + dtype.eta
        made = code * of_scale
        made = made + (size + made) * dtype.u + dtype.eta * (size > 0) + lost
        error = torch.maximum(error, made)
        over = over | (scale >= limit) | ((size + made).amax(-1, keepdim=True) >= limit)
    if "folded" in kinds:
        smallest, largest = scale * min(softmax_scale, 1.0), scale * max(softmax_scale * 1.5, 1.0)
        if others is not None and others.numel():
            smallest = smallest * others.where(others > 0, 1.0).amin(-2, keepdim=True).clamp(max=1.0)
            largest = largest * others.amax(-2, keepdim=True).clamp(min=1.0)
        error = torch.maximum(error, size * (4 * _U) + torch.where(smallest < 2 * _W, size, 0.0))
        over = over | (largest >= _OVERFLOW)  # the two may be multiplied first, in base 2
    return error, over


def _kinds(form: Form) -> tuple[str, ...]:
    return ("operand", "narrow", "folded") if form.dequantised == "unknown" else (form.dequantised,)


def quantised_errors(
    chunk: Chunk,
    q_scale: Tensor | None,
    k_scale: Tensor,
    v_scale: Tensor,
    *,
    form: Form,
    dtype: str,
    scale: float,
    p_max: float,
) -> QuantisedErrors:
    """Section 23.

    Args:
        chunk: The chunk.
        q_scale: `[G, M, 1]` of a q in codes, or None.
        k_scale: `[G, N, 1]`, 0 where a key has none that is finite.
        v_scale: Likewise.
        form: The form.
        dtype: Of the inputs.
        scale: |softmax scale|.
        p_max: Largest number of the format of the weights.
    """
    x, folded = FORMATS[dtype], "folded" in _kinds(form)
    k, over_k = _operand_error(chunk.k, k_scale, form, x, scale, q_scale)
    v, over_v = _operand_error(chunk.v, v_scale, form, x, 1.0)
    bad = chunk.over_keys(over_k.double()) > 0
    # The weight 0 of a hidden key times an infinity is NaN, as it is of an infinite V.
    if chunk.hidden_v is not None:
        over_v = over_v | _operand_error(chunk.hidden_v, v_scale, form, x, 1.0)[1]
    bad_v, reached = torch.zeros_like(bad), over_v.any(-2, keepdim=True)
    q = None
    if q_scale is not None:
        q, over_q = _operand_error(chunk.q, q_scale, form, x, scale, k_scale)
        bad = bad | over_q
    unit_v, most = chunk.av, torch.ones_like(v_scale)
    logit = torch.zeros_like(k_scale).mT
    if folded:
        most = most.maximum(v_scale)
        logit = (k_scale.clamp(min=1.0) * (chunk.k.shape[-1] * _W)).mT
        # Behind a scale of 0 any code may stand.
        sizes, rows = torch.where(k_scale > 0, _code(chunk.k, k_scale), _LARGEST_CODE), chunk.aq
        if q_scale is not None:  # the scales may be multiplied with the product in any order
            logit = logit * q_scale.clamp(min=1.0)
            sizes = sizes * k_scale.clamp(min=1.0)
            rows = torch.where(q_scale > 0, _code(chunk.q, q_scale), _LARGEST_CODE) * q_scale.clamp(min=1.0)
        products = chunk.mask(rows @ sizes.mT)
        if products.shape[-1]:
            bad = bad | (products.amax(-1, keepdim=True) * max(1.0, 1.5 * scale) >= _OVERFLOW)
    if folded and not form.v_scale_last:
        factor = form.p_factor * 2.0**form.rescale_threshold
        # A weight times the scale of V is cast, and multiplies a code.
        unit_v = torch.maximum(unit_v, _code(chunk.v, v_scale))
        heavy = (v_scale * (factor * (1 + 2.0**-7)) >= min(p_max, _OVERFLOW)) & (v_scale > 0)
        bad_v = bad_v | (chunk.over_keys(heavy.double()) > 0)
    return QuantisedErrors(
        q=q,
        k=k,
        v=v,
        logit=logit,
        unit_v=unit_v,
        most=most,
        bad=bad & ~chunk.empty,
        bad_v=(bad_v & ~chunk.empty) | reached,
    )


def aligned_codes(size: Tensor, scale: Tensor, *, form: Form, dtype: str) -> Tensor:
    """|K|, or |Q| in codes, as a matrix unit aligns it where the operand may be the code: a subnormal one enters with the smallest normal exponent."""
    x = FORMATS[dtype]
    if not x.narrow or form.architecture == "ieee" or "folded" not in _kinds(form):
        return size
    return torch.where(size > 0, torch.maximum(size, scale * x.min_normal), size)


def fp8_dot(K: int, *, interpreted: bool, chain: int | None) -> float:
    """D(K) of products of fp8 operands: `expm1(ceil(K / 32) 33 2^-13)`, of the keys of one chain; on no matrix unit `expm1(K u)`.

    Args:
        K: Number of products.
        interpreted: A chain of fp32 operations.
        chain: Products before a sum is added to an accumulator in fp32; None for all.
    """
    count = K if chain is None else min(K, chain)
    each = count * _U if interpreted else math.ceil(count / 32) * 33 * 2.0**-13
    return math.expm1(min(max(each, count * _U), 700.0))

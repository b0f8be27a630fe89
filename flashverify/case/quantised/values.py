"""The codes, scales and zero points of a case, from its k and v: the same bits on every machine."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.case.quantised.codes import code_format, packed
from flashverify.case.quantised.tails import with_tails
from flashverify.case.values import philox
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashverify.case.case import Case
    from flashverify.case.quantised.codes import CodeFormat
    from flashverify.case.quantised.quantised import Quantised

    Reals = NDArray[np.float64]

__all__ = ["QuantisedArrays", "quantised_arrays", "scale_shape"]

_SPREAD = 6
_COARSE_FLOAT, _COARSE_INTEGER = 2.0**12, 8.0
_FINE = 2.0**-3
_LEAST = FORMATS["fp32"].min_subnormal
_SMALLEST_SCALE = FORMATS["fp32"].min_normal * 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedArrays:
    """One of q, k and v in codes; of q with query heads and rows in place of kv heads and keys.

    Attributes:
        codes: bytes `[B, Hkv, Sk, D or D / 2]`.
        scale: `[1, 1, 1]`, `[B, Hkv, 1]` or `[B, Hkv, n]`, float64, exact in fp32.
        zero: of the same shape, int32; None without zero points.
    """

    codes: NDArray[np.uint8]
    scale: Reals
    zero: NDArray[np.int32] | None


def scale_shape(case: Case, name: str = "k") -> tuple[int, int, int]:
    """Of the scales of q, k or v: `[1, 1, 1]` for one of the tensor, `[B, heads, n]` for n of each head."""
    assert case.quantised is not None
    if case.quantised.scales == "tensor":
        return (1, 1, 1)
    heads, length = (case.heads_q, case.seq_q) if name == "q" else (case.heads_kv, case.seq_k)
    return (case.batch, heads, max(math.ceil(length / case.quantised.keys_per_scale(length)), 1))


@functools.lru_cache(maxsize=4)
def quantised_arrays(case: Case) -> dict[str, QuantisedArrays]:
    """Of `k` and `v`, and of `q` where it is in codes. Keys and rows outside the declared lengths count for no scale; their codes are replaced by the padding."""
    from flashverify.case.case import Storage
    from flashverify.case.values.tensor_bits import tensor_bits

    assert case.quantised is not None
    bits = tensor_bits(dataclasses.replace(case, quantised=None, storage=Storage(), launch=()))
    values = {name: _numbers(bits[name], case.dtype) for name in ("q", "k", "v")}
    if case.quantised.kind == "tails":
        values |= with_tails(case, values["q"], values["k"], values["v"])
    return {name: _quantise(case, name, values[name]) for name in case.quantised.operands}


def _numbers(bits: Any, dtype: str) -> Reals:
    if dtype == "bf16":
        found: Reals = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return found
    return np.asarray(bits.view(np.float16 if dtype == "fp16" else np.float32), np.float64)


def _quantise(case: Case, name: str, x: Reals) -> QuantisedArrays:
    how, shape, length = case.quantised, scale_shape(case, name), x.shape[2]
    assert how is not None
    form, per = code_format(how.codes), how.keys_per_scale(length)
    low, high = _ranges(case, x, shape, per, case.rows_inside if name == "q" else case.keys_inside)
    zeros, zero = how.zeros and name != "q", None
    scale = _scales(case, name, form, replace(how, zeros=zeros), low, high)
    if zeros:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.rint(form.lowest - low / np.where(scale > 0, scale, 1.0))
        zero = np.clip(np.nan_to_num(found), form.lowest, form.highest).astype(np.int32)
    at = np.minimum(np.arange(length) // per, shape[2] - 1)
    whole = (*x.shape[:2], shape[2])
    of_keys = np.broadcast_to(scale, whole)[..., at, None]
    middle: Any = form.middle
    if zero is not None:
        middle = np.broadcast_to(zero, whole)[..., at, None]
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = x / np.where(of_keys > 0, of_keys, 1.0) + middle
    codes = form.encode(scaled) if how.kind != "raw" else _raw(case, name, form, x.shape)
    return QuantisedArrays(codes=codes if form.per_byte == 1 else packed(codes), scale=scale, zero=zero)


def _ranges(
    case: Case, x: Reals, shape: tuple[int, int, int], per: int, lengths: tuple[int, ...] | None
) -> tuple[Reals, Reals]:
    """The least and the largest finite value that share a scale, 0 among them, of the declared keys or rows."""
    batch, heads, keys = x.shape[:3]
    inside = np.ones((batch, 1, keys, 1), bool)
    if lengths is not None:
        inside = (np.arange(keys) < np.array(lengths).reshape(-1, 1)).reshape(batch, 1, keys, 1)
    counted = np.where(inside & np.isfinite(x), x, 0.0)
    low, high = counted.min(-1, initial=0.0), counted.max(-1, initial=0.0)
    if shape[0] == 1 == shape[1] == shape[2] and case.quantised is not None and case.quantised.scales == "tensor":
        return low.min(initial=0.0).reshape(shape), high.max(initial=0.0).reshape(shape)
    room = shape[2] * per - keys
    edges = ((0, 0), (0, 0), (0, max(room, 0)))
    cut = (batch, heads, shape[2], per)
    return np.pad(low, edges).reshape(cut).min(-1, initial=0.0), np.pad(high, edges).reshape(cut).max(-1, initial=0.0)


def _scales(case: Case, name: str, form: CodeFormat, how: Quantised, low: Reals, high: Reals) -> Reals:
    """The scales, rounded to fp32; 1 where every value is 0."""
    seed, shape = case.values.seed, low.shape
    size = (high - low) / (form.highest - form.lowest) if how.zeros else np.maximum(high, -low) / form.symmetric
    size = np.where(size > 0, np.maximum(size, _SMALLEST_SCALE), 1.0)
    stream = f"{name}/scales"
    if how.kind == "power":
        fraction, exponent = np.frexp(size)
        size = np.ldexp(1.0, exponent - (fraction == 0.5))
    elif how.kind == "varied":
        size = size * 2.0 ** philox.integers(seed, stream, shape, -_SPREAD // 2, _SPREAD)
    elif how.kind == "coarse":
        size = size * (_COARSE_FLOAT if form.is_float else _COARSE_INTEGER)
    elif how.kind == "saturated":
        size = size * _FINE
    elif how.kind == "zero":
        size = np.where(philox.integers(seed, stream, shape, 0, 2) == 0, 0.0, size)
    elif how.kind == "subnormal":
        tiny = _LEAST * 2.0 ** philox.integers(seed, stream, shape, 0, 22)
        size = np.where(philox.integers(seed, f"{stream}/tiny", shape, 0, 1) == 0, tiny, size)
    limit = FORMATS["fp32"].max / max(abs(form.lowest), form.highest) / 2
    return np.minimum(size, limit).astype(np.float32).astype(np.float64)


def _raw(case: Case, name: str, form: CodeFormat, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Every code but those that are no finite number, whatever the values are."""
    accepted = np.flatnonzero(np.isfinite(form.numbers))
    drawn = philox.integers(case.values.seed, f"{name}/codes", shape, 0, len(accepted) - 1).astype(np.int64)
    return accepted[drawn].astype(np.uint8)

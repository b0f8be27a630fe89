"""Number formats: NumPy types for Triton's, and conversions as compiled kernels do them. Pure functions of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.hooks import tl

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BF16",
    "convert",
    "float_to_int",
    "fma",
    "is_float",
    "numpy_dtype",
    "round_to_odd",
    "simple_cast",
    "tf32_nearest",
    "tf32_truncate",
    "toward_zero",
]

Array = Any

BF16 = np.dtype(ml_dtypes.bfloat16)
_FP8 = {
    tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
    tl.float8e5b16: np.dtype(ml_dtypes.float8_e5m2fnuz),
    tl.float8e4nv: np.dtype(ml_dtypes.float8_e4m3fn),
    tl.float8e4b8: np.dtype(ml_dtypes.float8_e4m3fnuz),
}
_SATURATION = {
    dtype: float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    for dtype in _FP8.values()
}
_FLOATS = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64), BF16, *_FP8.values()}
_TABLE = {
    tl.int1: np.dtype(bool),
    tl.bfloat16: BF16,
    tl.float16: np.dtype(np.float16),
    tl.float32: np.dtype(np.float32),
    tl.float64: np.dtype(np.float64),
    **_FP8,
    **{getattr(tl, name): np.dtype(name) for name in ("int8", "int16", "int32", "int64")},
    **{getattr(tl, name): np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
}
_BY_NAME: dict[str, np.dtype[Any]] = {dtype.name: found for dtype, found in _TABLE.items()}
_POINTER = np.dtype(np.uint64)


def numpy_dtype(tt_dtype: Any) -> np.dtype[Any]:
    """The NumPy type of a Triton type, of its elements where it is a block.

    Raises:
        TypeError: there is none; `fp8e4b15` exists in no library.
    """
    if isinstance(tt_dtype, tl.core.block_type):
        tt_dtype = tt_dtype.element_ty
    found = _BY_NAME.get(tt_dtype.name)
    if found is not None:
        return found
    if isinstance(tt_dtype, tl.pointer_type):
        return _POINTER
    raise TypeError(f"{tt_dtype} is not supported by flashverify.interpreter")


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy type is a floating-point one; those of ml_dtypes are not `np.floating`."""
    return dtype in _FLOATS


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"uint{dtype.itemsize * 8}")


def round_to_odd(x: Array, error: Array) -> Array:
    """Replace a rounded value by the neighbour with an odd significand where it was inexact.

    A second rounding to a format with at least two bits less is then a single rounding of the exact value.

    Args:
        x: fp32 or fp64, the nearest value to the exact one.
        error: exact minus `x`, of which only the sign matters.
    """
    even = (x.view(_bits(x.dtype)) & 1) == 0
    move = (error != 0) & even & np.isfinite(x)
    return np.where(move, np.nextafter(x, np.where(error > 0, np.inf, -np.inf).astype(x.dtype)), x)


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert floats or integers to a float format, rounding floats once to nearest even.

    Integers of more bits than fp32 has become fp32 first where the format is narrower, as Triton converts them.
    fp8 saturates as NVIDIA's conversions do: everything beyond the largest finite value, infinities too, becomes it.
    """
    if x.dtype == dtype:
        return x
    if x.dtype == np.float64 and dtype.itemsize < 4 and dtype != np.float16:
        single = x.astype(np.float32)
        x = round_to_odd(single, x - single)
    limit = _SATURATION.get(dtype)
    if limit is not None:
        x = np.clip(x.astype(np.float32), np.float32(-limit), np.float32(limit))
    return x.astype(dtype)


def simple_cast(source: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The type itself where `astype` converts to it rightly, rounding once and without saturation; else None."""
    to_float = is_float(dtype)
    exact = source != np.float64 and dtype not in _SATURATION if to_float else not is_float(source)
    return dtype if exact else None


def toward_zero(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert floats to a narrower format, rounding toward zero."""
    near = x.astype(dtype)
    bits = near.view(_bits(dtype))
    too_far = np.abs(near.astype(x.dtype)) > np.abs(x)
    return np.where(too_far, bits - bits.dtype.type(1), bits).view(dtype)


def float_to_int(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate floats to integers as the conversions of PTX do: out of range saturates.

    NaN gives 0, but where a side has 64 bits the highest bit alone: the smallest signed number (PTX ISA, `cvt`).
    """
    info = np.iinfo(dtype)
    wide = np.trunc(x.astype(np.float64))
    limit = float(info.max) + 1.0 if info.bits < 64 else 2.0 ** (63 if info.min else 64)
    inside = (wide >= info.min) & (wide < limit)
    result = np.where(inside, wide, 0.0).astype(dtype)
    if info.bits == 64 or x.dtype == np.float64:
        result = np.where(np.isnan(wide), dtype.type(info.min or 1 << (info.bits - 1)), result)
    result = np.where(wide >= limit, dtype.type(info.max), result)
    return np.where(wide < info.min, dtype.type(info.min), result)


def fma(x: Array, y: Array, z: Array) -> Array:
    """The value of x * y + z in the type of `z`, rounded once; fp64 is rounded twice."""
    if z.dtype == np.float64 or not is_float(z.dtype):
        return x * y + z
    product = x.astype(np.float64) * y.astype(np.float64)
    addend = z.astype(np.float64)
    total = product + addend
    tail = total - product
    error = (product - (total - tail)) + (addend - tail)
    return convert(round_to_odd(total, np.nan_to_num(error)), z.dtype)


_LOW = np.uint32(0x1FFF)
_HALF = np.uint32(0x1000)


def tf32_truncate(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """fp32 as a tf32 tensor core reads it: the low 13 bits are ignored. NaN stays NaN."""
    return _but_for_nan(x, (x.view(np.uint32) & ~_LOW).view(np.float32))


def tf32_nearest(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """`cvt.rna.tf32.f32`: to nearest, ties away from zero. NaN stays NaN."""
    return _but_for_nan(x, ((x.view(np.uint32) + _HALF) & ~_LOW).view(np.float32))


def _but_for_nan(x: NDArray[np.float32], rounded: NDArray[np.float32]) -> NDArray[np.float32]:
    """`rounded`, but `x` where that is NaN."""
    nan = np.isnan(x)
    return np.where(nan, x, rounded) if count_nonzero(nan) else rounded

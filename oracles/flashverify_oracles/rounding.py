"""Exact single rounding to a floating format: to nearest, ties to even, with subnormals and overflow as in IEEE 754.

The ordinary routes round twice: mpmath to float64 to bfloat16, or float64 to float32 to bfloat16 as common conversions do.
`1 + 2**-8 + 2**-40` becomes 1.0 that way; the nearest bfloat16 is 1.0078125.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import mpmath
import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class _Format:
    """Bits of the significand with the hidden one, exponent of the smallest normal number, exponent of the largest."""

    bits: int
    emin: int
    emax: int

    @property
    def quantum(self) -> int:
        """Exponent of the smallest subnormal number."""
        return self.emin - self.bits + 1


_FORMATS = {
    torch.float16: _Format(bits=11, emin=-14, emax=15),
    torch.bfloat16: _Format(bits=8, emin=-126, emax=127),
    torch.float32: _Format(bits=24, emin=-126, emax=127),
    torch.float64: _Format(bits=53, emin=-1022, emax=1023),
}


def round_scalar(x: mpmath.mpf | Fraction | float, dtype: torch.dtype) -> float:
    """The number of `dtype` nearest to `x`, rounded once.

    Args:
        x: an mpmath number, a Fraction, an int or a float; taken exactly, whatever mpmath's precision is.
        dtype: `torch.float16`, `torch.bfloat16`, `torch.float32` or `torch.float64`.

    Returns:
        The rounded value as a Python float, which holds every number of these formats. Magnitudes from the midpoint beyond the
        largest finite number on give an infinity; a negative `x` that rounds to zero gives -0.0; NaN stays NaN.

    Raises:
        TypeError: `x` is not such a number.
        ValueError: `dtype` is not one of these.
    """
    fmt = _format(dtype)
    if isinstance(x, mpmath.mpf):
        if not mpmath.isfinite(x):
            return float(x)
        mantissa, exponent = (int(part) for part in x.man_exp)
        negative = bool(x < 0)
    elif isinstance(x, bool):
        raise TypeError(f"x must be an mpf, a Fraction, an int or a float, got {x!r} (type=bool)")
    elif isinstance(x, float):
        if not math.isfinite(x) or x == 0.0:
            return float(x)
        mantissa, exponent = _dyadic(Fraction(x), fmt)
        negative = x < 0
    elif isinstance(x, int | Fraction):
        mantissa, exponent = _dyadic(Fraction(x), fmt)
        negative = x < 0
    else:
        raise TypeError(f"x must be an mpf, a Fraction, an int or a float, got {x!r} (type={type(x).__name__})")
    magnitude = _round_dyadic(abs(mantissa), exponent, fmt)
    return -magnitude if negative else magnitude


def round_array(values: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
    """`round_scalar` of every element of an array of numbers, as a CPU tensor of `dtype`.

    Args:
        values: array of any shape, of dtype object (mpf, Fraction, int, float) or float64.
        dtype: as in `round_scalar`.

    Returns:
        Tensor of the same shape and of `dtype`.

    Raises:
        TypeError: an element is not a number.
        ValueError: `dtype` is not supported.
    """
    _format(dtype)
    rounded = [round_scalar(x, dtype) for x in values.reshape(-1).tolist()]
    return torch.tensor(rounded, dtype=torch.float64).reshape(values.shape).to(dtype)


def round_tensor(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Every element of a float64 tensor rounded once to `dtype`.

    Args:
        x: float64 tensor of any shape, on any device.
        dtype: as in `round_scalar`.

    Returns:
        Tensor of `dtype`, of the same shape and device. Infinities and NaN stay, zeros keep their sign.

    Raises:
        TypeError: `x` is not a float64 tensor.
        ValueError: `dtype` is not supported.
    """
    fmt = _format(dtype)
    if not isinstance(x, Tensor) or x.dtype != torch.float64:
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a float64 tensor, got {got}")
    if dtype == torch.float64:
        return x.detach().clone()
    x = x.detach()
    magnitude = x.abs()
    # Normal range: add just under half a unit to the bit pattern, one more if the kept part is odd; a carry moves into the exponent.
    drop = 53 - fmt.bits
    pattern = magnitude.contiguous().view(torch.int64)
    pattern = (pattern + ((1 << (drop - 1)) - 1) + ((pattern >> drop) & 1)) >> drop << drop
    normal = pattern.view(torch.float64)
    normal = normal.masked_fill(normal >= math.ldexp(1.0, fmt.emax + 1), math.inf)
    # Subnormal range: next to this anchor, float64 itself has the spacing of the format's subnormal numbers.
    anchor = math.ldexp(1.0, 52 + fmt.quantum)
    tiny = (magnitude + anchor) - anchor
    rounded = torch.where(magnitude < math.ldexp(1.0, fmt.emin), tiny, normal)
    return torch.where(torch.isfinite(x), torch.copysign(rounded, x), x).to(dtype)


def _format(dtype: torch.dtype) -> _Format:
    if dtype not in _FORMATS:
        raise ValueError(f"dtype must be one of {', '.join(map(str, _FORMATS))}, got {dtype!r}")
    return _FORMATS[dtype]


def _dyadic(x: Fraction, fmt: _Format) -> tuple[int, int]:
    """Signed mantissa and exponent whose rounding to `fmt` is that of `x`: enough bits, then a last one that says "not exact"."""
    numerator, denominator = abs(x.numerator), x.denominator
    shift = max(0, fmt.bits + 2 - numerator.bit_length() + denominator.bit_length())
    quotient, rest = divmod(numerator << shift, denominator)
    return 2 * quotient + (rest != 0), -shift - 1


def _round_dyadic(mantissa: int, exponent: int, fmt: _Format) -> float:
    """`mantissa * 2**exponent`, not negative, rounded to `fmt`."""
    if mantissa == 0:
        return 0.0
    top = mantissa.bit_length() + exponent - 1
    if top > fmt.emax:
        return math.inf
    quantum = max(top - fmt.bits + 1, fmt.quantum)
    drop = quantum - exponent
    if drop > mantissa.bit_length():
        return 0.0  # below half of the smallest subnormal number
    if drop > 0:
        kept, rest = mantissa >> drop, mantissa & ((1 << drop) - 1)
        half = 1 << (drop - 1)
        kept += rest > half or (rest == half and kept & 1)
    else:
        kept = mantissa << -drop
    return math.inf if kept.bit_length() + quantum - 1 > fmt.emax else math.ldexp(kept, quantum)

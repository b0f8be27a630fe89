"""Bit patterns of fp16, bf16 and fp32: one rounding from float64, and the values that padding is poisoned with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]

__all__ = ["FORMATS", "Format", "to_bits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format.

    Attributes:
        mantissa: stored bits of the significand.
        emin: exponent of the smallest normal number.
        emax: exponent of the largest finite one.
        max: largest finite value.
        word: unsigned integer type of the same size, as numpy names it.
        poisons: bit pattern by poison; `dirt` has none of its own.
    """

    mantissa: int
    emin: int
    emax: int
    max: float
    word: str
    poisons: dict[str, int]

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value, exact in float64."""
        return 2.0 ** (self.emin - self.mantissa)


def _format(mantissa: int, emin: int, emax: int, word: str, inf: int) -> Format:
    sign = 1 << (int(word[1:]) * 8 - 1)
    poisons = {"zero": 0, "max": inf - 1, "inf": inf, "-inf": sign | inf, "nan": inf | 1 << (mantissa - 1)}
    largest = (2 - 2.0**-mantissa) * 2.0**emax
    return Format(mantissa=mantissa, emin=emin, emax=emax, max=largest, word=word, poisons=poisons)


FORMATS = {
    "fp16": _format(10, -14, 15, "u2", 0x7C00),
    "bf16": _format(7, -126, 127, "u2", 0x7F80),
    "fp32": _format(23, -126, 127, "u4", 0x7F800000),
}


def to_bits(values: NDArray[np.float64], dtype: str) -> Bits:
    """Bit patterns of `values` rounded once, to nearest even, in the format named `dtype`; beyond the range is infinity."""
    bits: Bits
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype == "fp16":
            bits = values.astype(np.float16).view(np.uint16)
        elif dtype == "fp32":
            bits = values.astype(np.float32).view(np.uint32)
        else:
            bits = _to_bf16(values)
    bits[np.isnan(values)] = FORMATS[dtype].poisons["nan"]
    return bits


def _to_bf16(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Through fp32 rounded to odd, which keeps what the second rounding must know of the first."""
    near = values.astype(np.float32)
    bits = near.view(np.uint32).astype(np.int64)
    wide = near.astype(np.float64)
    bits -= np.abs(wide) > np.abs(values)  # truncated: one step towards zero where fp32 rounded away from it
    bits |= wide != values
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)

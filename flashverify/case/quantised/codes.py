"""The formats of codes: what each code stands for, and the code of a value. Pure functions of arrays; no torch.

A code is one byte, but for `int4` with two codes in a byte: channel 2c in its low half, channel 2c + 1 in its high half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Reals = NDArray[np.float64]
    Bytes = NDArray[np.uint8]

__all__ = ["CODES", "CodeFormat", "code_format", "packed", "unpacked"]

_LEAST_INT8 = -128


@dataclass(frozen=True, kw_only=True)
class CodeFormat:
    """One format of codes.

    Attributes:
        name: `e4m3`, `e5m2`, `int8` or `int4`.
        library: the torch dtype of a tensor of codes; `int4` comes as bytes of two.
        mantissa: stored bits of the significand; 0 of integers.
        bias: of the exponent; 0 of integers.
        lowest, highest: the codes of integers as numbers, or the largest finite magnitude of floats.
        middle: what an integer code of the value 0 is where there is no zero point.
    """

    name: str
    library: str
    mantissa: int = 0
    bias: int = 0
    lowest: float
    highest: float
    middle: int = 0

    @property
    def is_float(self) -> bool:
        """Whether codes are floating-point numbers, which have no zero points."""
        return self.mantissa > 0

    @property
    def per_byte(self) -> int:
        """Codes in a byte."""
        return 2 if self.name == "int4" else 1

    @property
    def symmetric(self) -> float:
        """The code that the largest magnitude gets where there is no zero point."""
        return self.highest if self.is_float else self.highest - self.middle

    @property
    def u(self) -> float:
        """Unit roundoff of floats."""
        return 2.0 ** -(self.mantissa + 1)

    @property
    def least(self) -> float:
        """The smallest positive float, subnormal."""
        return 2.0 ** (1 - self.bias - self.mantissa)

    @cached_property
    def numbers(self) -> Reals:
        """What each of the 256 bytes stands for, `[256]`; of `int4` each of its 16 codes, `[16]`. NaN and infinities among them."""
        import numpy as np

        if self.name == "int4":
            return np.arange(16, dtype=np.float64)
        codes = np.arange(256, dtype=np.int64)
        if not self.is_float:
            return np.where(codes < 128, codes, codes - 256).astype(np.float64)
        size = codes & 0x7F
        exponent, fraction = size >> self.mantissa, size & ((1 << self.mantissa) - 1)
        value = np.ldexp(
            fraction + (exponent > 0) * 2.0**self.mantissa, np.maximum(exponent, 1) - self.bias - self.mantissa
        )
        top = int(self._largest)
        value[size > top] = np.nan
        if self.name == "e5m2":
            value[size == top + 1] = np.inf
        signed: Reals = np.where(codes < 128, value, -value)
        return signed

    @property
    def _largest(self) -> int:
        """The code of the largest finite float."""
        return 0x7E if self.name == "e4m3" else 0x7B

    def encode(self, x: Reals) -> Bytes:
        """The codes of values that are scaled already, one a byte: to nearest even; what lies beyond the range becomes its end.

        NaN is the code NaN of floats and the code of 0 of integers. An infinity is the code of it, NaN where the format has none,
        and the end of the range of integers.
        """
        import numpy as np

        if not self.is_float:
            rounded = np.clip(
                np.nan_to_num(np.rint(x), nan=self.middle, posinf=self.highest, neginf=self.lowest),
                self.lowest,
                self.highest,
            )
            integers: Bytes = rounded.astype(np.int64).astype(np.uint8)
            return integers
        finite = self.numbers[: self._largest + 1]
        size = np.minimum(np.nan_to_num(np.abs(x), nan=0.0), self.highest)
        below = np.searchsorted(finite, size, side="right") - 1
        above = np.minimum(below + 1, self._largest)
        down, up = size - finite[below], finite[above] - size
        code = np.where((up < down) | ((up == down) & (below % 2 == 1)), above, below)
        code = np.where(np.isinf(x), self._largest + 1, np.where(np.isnan(x), 0x7F, code))
        found: Bytes = (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)
        return found


CODES: dict[str, CodeFormat] = {
    entry.name: entry
    for entry in (
        CodeFormat(name="e4m3", library="float8_e4m3fn", mantissa=3, bias=7, lowest=-448.0, highest=448.0),
        CodeFormat(name="e5m2", library="float8_e5m2", mantissa=2, bias=15, lowest=-57344.0, highest=57344.0),
        CodeFormat(name="int8", library="int8", lowest=float(_LEAST_INT8), highest=127.0),
        CodeFormat(name="int4", library="uint8", lowest=0.0, highest=15.0, middle=8),
    )
}


def code_format(name: str) -> CodeFormat:
    """The format of that name; raises KeyError where there is none."""
    return CODES[name]


def packed(codes: Bytes) -> Bytes:
    """Codes of `int4` `[..., D]`, two in a byte `[..., D / 2]`."""
    import numpy as np

    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def unpacked(stored: Bytes) -> Bytes:
    """The inverse of `packed`."""
    import numpy as np

    return np.stack([stored & 15, stored >> 4], -1).reshape(*stored.shape[:-1], -1)

"""The floating-point formats: the one table of what distinguishes them. Importable without torch.

A format is named as in the text of a case (`fp16`) and as torch, numpy, ml_dtypes and Triton name it (`float16`). The oracles keep a
table of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["DTYPES", "FORMATS", "Format", "format_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One binary format under round to nearest even.

    Attributes:
        name: `fp16`, `bf16`, `fp32` or `fp64`.
        library: its name in torch, numpy and Triton.
        bits: of a value in memory.
        mantissa: stored bits of the significand.
        emin: exponent of the smallest normal number.
        emax: exponent of the largest finite one.
        subnormals: hardware honours them; otherwise it may flush them to zero.
        unwritten: two bit patterns of memory that nobody wrote: quiet NaNs with payloads that no arithmetic produces.
        of_kernels: a kernel may be given tensors of this format.
    """

    name: str
    library: str
    bits: int
    mantissa: int
    emin: int
    emax: int
    subnormals: bool
    unwritten: tuple[int, int]
    of_kernels: bool = True

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype."""
        import torch

        found: torch.dtype = getattr(torch, self.library)
        return found

    @property
    def u(self) -> float:
        """Unit roundoff, half the spacing above 1: a normal result is `x (1 + d)`, `|d| <= u`."""
        return 2.0 ** -(self.mantissa + 1)

    @property
    def eta(self) -> float:
        """Absolute error of a result below `min_normal`: half the smallest subnormal, or `min_normal` where hardware may flush."""
        return self.min_subnormal / 2 if self.subnormals else self.min_normal

    @property
    def max(self) -> float:
        """Largest finite value."""
        return (2 - 2.0**-self.mantissa) * 2.0**self.emax

    @property
    def overflow(self) -> float:
        """Smallest magnitude that rounds to infinity, `max` plus half a spacing; infinity for fp64, which cannot hold it."""
        return math.inf if self.bits == 64 else (2 - 2.0 ** -(self.mantissa + 1)) * 2.0**self.emax

    @property
    def min_normal(self) -> float:
        """Smallest positive normal value."""
        return 2.0**self.emin

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value, exact in float64."""
        return 2.0 ** (self.emin - self.mantissa)

    @property
    def narrow(self) -> bool:
        """16 bits: weights and dS are rounded to the format before their dots, which matrix units take as they are."""
        return self.bits == 16

    @property
    def short(self) -> bool:
        """Its range is shorter than that of fp32: ordinary results may be subnormal or overflow."""
        return self.emax < 127

    @property
    def word(self) -> str:
        """Unsigned integer type of the same size, as numpy names it."""
        return f"u{self.bits // 8}"

    @property
    def poisons(self) -> dict[str, int]:
        """Bit pattern by poison of padding; `dirt` has none of its own."""
        sign, inf = 1 << (self.bits - 1), ((1 << (self.bits - 1 - self.mantissa)) - 1) << self.mantissa
        return {"zero": 0, "max": inf - 1, "inf": inf, "-inf": sign | inf, "nan": inf | 1 << (self.mantissa - 1)}


FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(
            name="fp16", library="float16", bits=16, mantissa=10, emin=-14, emax=15,
            subnormals=True, unwritten=(0x7F35, 0xFE9B),
        ),
        Format(
            name="bf16", library="bfloat16", bits=16, mantissa=7, emin=-126, emax=127,
            subnormals=False, unwritten=(0x7FD6, 0xFFE9),
        ),
        Format(
            name="fp32", library="float32", bits=32, mantissa=23, emin=-126, emax=127,
            subnormals=False, unwritten=(0x7FE5C3A1, 0xFFD3A5C7),
        ),
        Format(
            name="fp64", library="float64", bits=64, mantissa=52, emin=-1022, emax=1023,
            subnormals=False, unwritten=(0x7FF9E5C3A1D79B53, 0xFFFCB7A59D3B71E5), of_kernels=False,
        ),
    )
}  # fmt: skip

DTYPES = tuple(entry.name for entry in FORMATS.values() if entry.of_kernels)
"""The dtypes of a kernel's tensors."""

_BY_NAME = FORMATS | {entry.library: entry for entry in FORMATS.values()}


def format_of(name: Any) -> Format:
    """Look a format up.

    Args:
        name: `fp16`, `bf16`, `fp32` or `fp64`, the name of one of them in a library, or its torch or numpy dtype.

    Raises:
        ValueError: there is no such format.
    """
    found = _BY_NAME.get(str(name).removeprefix("torch."))
    if found is None:
        raise ValueError(f"dtype={name!r} is not a known format; accepted: {', '.join(FORMATS)}")
    return found

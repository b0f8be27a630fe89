"""Bit patterns of fp16, bf16 and fp32: one rounding from float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]

__all__ = ["to_bits"]


def to_bits(values: NDArray[np.float64], dtype: str) -> Bits:
    """Bit patterns of `values` rounded once, to nearest even, in the format named `dtype`; beyond the range is infinity."""
    bits: Bits
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = values.astype(np.float32)
        if dtype != "fp32" and (near == values).all():
            return _narrowed(near, dtype)
        if dtype == "fp16":
            bits = values.astype(np.float16).view(np.uint16)
        elif dtype == "fp32":
            bits = near.view(np.uint32)
        else:
            bits = _to_bf16(values, near)
    bits[np.isnan(values)] = FORMATS[dtype].poisons["nan"]
    return bits


def _narrowed(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint16]:
    """Numbers of fp32 in a format of 16 bits: torch rounds many at once, where numpy rounds one after the other."""
    import torch

    narrow = torch.from_numpy(values).to(FORMATS[dtype].dtype)
    return narrow.view(torch.int16).numpy().view(np.uint16)


def _to_bf16(values: NDArray[np.float64], near: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Through fp32, where `near` is rounded to odd, which keeps what the second rounding must know of the first."""
    bits = near.view(np.uint32).astype(np.int64)
    wide = near.astype(np.float64)
    bits -= np.abs(wide) > np.abs(values)  # truncated: one step towards zero where fp32 rounded away from it
    bits |= wide != values
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)

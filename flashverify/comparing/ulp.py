"""Distances between floats in units in the last place of their own format."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ulp_distance"]

_SPECIAL = {"fp16": 0x7C00, "bf16": 0x7F80, "fp32": 0x7F800000}
"""Bits of +infinity; larger magnitudes are NaN."""


def ulp_distance(before: Any, after: Any, dtype: str) -> Any:
    """How many representable numbers lie between two arrays of floats, float64; +0 and -0 are 0 apart.

    Two NaN are 0 apart, whatever their bits. A NaN and a number are infinitely far apart, and so are an infinity and a finite number.

    Args:
        before: the bits, as signed integers of the size of the type.
        after: likewise.
        dtype: `fp16`, `bf16` or `fp32`.
    """
    special = _SPECIAL[dtype]
    top = 1 << (31 if dtype == "fp32" else 15)

    def ordered(bits: Any) -> tuple[Any, Any]:
        wide = bits.astype(np.int64)
        size = np.where(wide < 0, wide + top, wide)
        return np.where(wide < 0, -size, size), size

    (old, old_size), (new, new_size) = ordered(before), ordered(after)
    distance = np.abs(old - new).astype(np.float64)
    odd = ((old_size > special) != (new_size > special)) | ((old_size >= special) != (new_size >= special))
    both_nan = (old_size > special) & (new_size > special)
    opposite = (old_size == special) & (new_size == special) & (old != new)
    return np.where(both_nan, 0.0, np.where(odd | opposite, np.inf, distance))

"""Tiles of packed sequences, which end at the end of their sequence: what is fetched behind it is 0, and what is stored there is dropped.

The copy engine knows the ends of a tensor alone. A descriptor of packed rows has two more axes, whose steps add up to 2^64 bytes, a step of
nothing, so that a place decides at which row the axis of rows ends (`triton.tools.ragged_tma`).
"""

import triton.language as tl
from triton.experimental import gluon

FAR = tl.constexpr(1 << 30)
"""Where the axis of rows ends, and the place on the first axis: more than there are rows."""


@gluon.jit
def place(cu_ptr, b, h, row, first, length):
    """Where the tile from `row` on of head `h` is: in batch `b`, or in a packed sequence (`cu_ptr`) of `length` rows from `first` on."""
    found = (b, h, row, 0)
    if cu_ptr is not None:
        found = (FAR, first + length, h, FAR - length + row, 0)  # type: ignore[assignment]
    return found

"""Loads as one numpy gather over the range that their addresses span; only the addresses themselves are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from triton._C.libtriton import interpreter as native

__all__ = ["load"]

_SMALLEST = 512
"""Below so many lanes the native loop is faster."""


class _Memory:
    """Raw memory as numpy takes it."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, count: int, dtype: Any) -> None:
        self.__array_interface__ = {"data": (address, True), "shape": (count,), "typestr": dtype.str, "version": 3}


def load(at: Any, keep: Any, fill: Any, dtype: Any) -> Any:
    """The elements at the addresses `at`, uint64; where `keep` is false `fill`, or 0 where that is None.

    Args:
        at: addresses, any shape.
        keep: bool, of that shape.
        fill: of that shape and dtype, or None.
        dtype: unsigned, of the size of the elements.
    """
    whole = bool(keep.all())
    own = at if whole else at[keep]
    if own.size < _SMALLEST:
        return native.load(at, keep, np.zeros(at.shape, dtype) if fill is None else fill, dtype)
    first, last = int(own.min()), int(own.max())
    places = at - np.uint64(first)
    if dtype.itemsize > 1:
        shift = np.uint64(dtype.itemsize.bit_length() - 1)
        if int(np.bitwise_or.reduce((own - np.uint64(first)).ravel())) % dtype.itemsize:
            return native.load(at, keep, np.zeros(at.shape, dtype) if fill is None else fill, dtype)
        places >>= shift
    memory = np.asarray(_Memory(first, (last - first) // dtype.itemsize + 1, dtype))
    found = memory.take(places.view(np.int64), mode="clip")
    return found if whole else np.where(keep, found, dtype.type(0) if fill is None else fill)

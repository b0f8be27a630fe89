"""Loads and stores as one numpy operation over the range that their addresses span; only the addresses themselves are touched."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from triton._C.libtriton import interpreter as native

__all__ = ["load", "memory", "remembered", "store"]

_SMALLEST = 512
"""Below so many lanes the native loop is faster."""


class _Memory:
    """Raw memory as numpy takes it."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, count: int, dtype: Any, *, read_only: bool) -> None:
        data = (address, read_only)
        self.__array_interface__ = {"data": data, "shape": (count,), "typestr": dtype.str, "version": 3}


def memory(address: int, count: int, dtype: Any, *, read_only: bool = False) -> Any:
    """Raw memory as an array, which does not keep it alive.

    Args:
        address: of the first element.
        count: of elements.
        dtype: one of NumPy's own.
        read_only: whether nobody may write to it.
    """
    return np.asarray(_Memory(address, count, dtype, read_only=read_only))


@functools.lru_cache(1 << 10)
def remembered(address: int, count: int, dtype: Any) -> Any:
    """`memory` of a tensor, which several launches get: the array says where the memory lies, whoever has it."""
    return memory(address, count, dtype)


def load(at: Any, keep: Any, fill: Any, dtype: Any) -> Any:
    """The elements at the addresses `at`, uint64; where `keep` is false `fill`, or 0 where that is None.

    Args:
        at: addresses, any shape.
        keep: bool, of that shape.
        fill: of that shape and dtype, or None.
        dtype: unsigned, of the size of the elements.
    """
    whole = bool(keep.all())
    span = _span(at if whole else at[keep], dtype, read_only=True)
    if span is None:
        return native.load(at, keep, np.zeros(at.shape, dtype) if fill is None else fill, dtype)
    words, first = span
    found = words.take(_places(at, first, dtype), mode="clip")
    return found if whole else np.where(keep, found, dtype.type(0) if fill is None else fill)


def store(at: Any, data: Any, keep: Any) -> None:
    """Store `data` at the addresses `at` where `keep` is true, in the order of the elements: the last one of an address stays.

    Args:
        at: addresses, uint64, any shape.
        data: unsigned, of that shape.
        keep: bool, of that shape.
    """
    whole = bool(keep.all())
    own = at if whole else at[keep]
    span = _span(own, data.dtype, read_only=False)
    if span is None:
        native.store(at, data, keep)
        return
    words, first = span
    words[_places(own, first, data.dtype)] = data if whole else data[keep]


def _span(own: Any, dtype: Any, *, read_only: bool) -> tuple[Any, int] | None:
    """The memory from the lowest to the highest address, and the lowest; None where the native loop is to be taken."""
    if own.size < _SMALLEST:
        return None
    first, last = int(own.min()), int(own.max())
    if dtype.itemsize > 1 and int(np.bitwise_or.reduce((own - np.uint64(first)).ravel())) % dtype.itemsize:
        return None
    count = (last - first) // dtype.itemsize + 1
    return memory(first, count, dtype, read_only=read_only), first


def _places(at: Any, first: int, dtype: Any) -> Any:
    """Distances from the lowest address, elements."""
    return ((at - np.uint64(first)) >> np.uint64(dtype.itemsize.bit_length() - 1)).view(np.int64)

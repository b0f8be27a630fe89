"""Tiles that are made when someone looks at them: broadcasts, and pointers to rows with the offsets of columns.

A load that knows its tensor needs neither: it adds the two small parts once, as distances from the tensor's first element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flashverify.interpreter.hooks import TensorHandle

__all__ = ["Outer", "Spread", "first_of_range", "part_of", "spread"]

_SMALL = 1 << 14


def spread(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` in a larger shape: a view, or a copy where that is faster to make."""
    if x.shape == shape:
        return x
    if math.prod(shape) > _SMALL:
        return np.broadcast_to(x, shape)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


class _Late(TensorHandle):  # type: ignore[misc]
    """A handle whose array is made once, by `_make`; one that is put in its place is `part` as well."""

    attr: dict[str, Any]
    part: Any
    _made: Any = None

    @property
    def data(self) -> Any:
        """The array."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @data.setter
    def data(self, value: Any) -> None:
        self._made = self.part = value

    def _make(self) -> Any:
        raise NotImplementedError


class Spread(_Late):
    """A broadcast.

    Attributes:
        part: what is broadcast.
        shape: of the result.
    """

    def __init__(self, part: Any, shape: tuple[int, ...], dtype: Any) -> None:
        self.part, self.shape, self.dtype, self.attr = part, shape, dtype, {}

    def _make(self) -> Any:
        return spread(self.part, self.shape)


class Outer(_Late):
    """Pointers to the elements of a tile.

    Attributes:
        pointers: uint64, that of the first column of each row, or likewise along other axes.
        offsets: of the columns, elements, integers.
        size: bytes of an element.
        first: the offset of the first column, where that is known to be the first of a range; else None.
        shape: of the result.
    """

    def __init__(self, pointers: Any, offsets: Any, size: int, dtype: Any, first: int | None = None) -> None:
        self.pointers, self.offsets, self.size, self.dtype, self.attr = pointers, offsets, size, dtype, {}
        self.shape: tuple[int, ...] = tuple(map(max, pointers.shape, offsets.shape))
        self.first = first

    def first_column(self) -> int | None:
        """The offset of the first column, where the columns of each row follow each other; else None."""
        if self.pointers.shape[-1] != 1:
            return None
        return first_of_range(self.offsets) if self.first is None else self.first

    def _make(self) -> Any:
        return self.pointers + self.offsets.astype(np.uint64) * np.uint64(self.size)


def first_of_range(offsets: Any) -> int | None:
    """The first of offsets that count upwards by one along the last axis and are the same along the others; None of any others, and of None."""
    if offsets is None or offsets.size != offsets.shape[-1] or offsets.dtype.kind not in "iu":
        return None
    flat = offsets.reshape(-1).astype(np.int64)
    return int(flat[0]) if flat.size and bool((flat == flat[0] + np.arange(flat.size)).all()) else None


def part_of(held: Any) -> Any:
    """The array of a handle, or the smaller one that it is a broadcast of."""
    if held.__class__ is Spread:
        return held.part
    return held if isinstance(held, np.ndarray) else held.data

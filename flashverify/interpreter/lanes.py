"""Where the lanes of a load or store lie in their tensor: each lane, or the first one of each row."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flashverify.interpreter.counting import count_nonzero

if TYPE_CHECKING:
    from flashverify.interpreter.late import Outer
    from flashverify.interpreter.memory import Argument

__all__ = ["Lanes", "lanes_inside", "outside", "rows_inside", "where_outside"]


class Lanes(NamedTuple):
    """Lanes of a load or store that belong to one tensor.

    Attributes:
        argument: the tensor.
        places: see `Argument.places`; of the first lane of each row, where there are rows, 0 of one that is masked off.
        width: lanes of a row, which follow each other in memory; 0 where `places` are those of single lanes.
        whole: whether no lane is known to be masked off.
    """

    argument: Argument
    places: Any
    width: int = 0
    whole: bool = False

    def taken(self, words: Any) -> Any:
        """The elements of the lanes; anything in lanes that are outside the tensor, which are masked off.

        Args:
            words: see `Argument.words`.
        """
        if not self.width:
            return words.take(self.places.view(np.int64), mode="clip")
        return self.rows(words)[self.places]

    def rows(self, words: Any) -> Any:
        """What begins at each element of an array that a row of lanes can begin at, `[places, width]`: all in the memory of the array."""
        return np.ndarray((words.size - self.width + 1, self.width), words.dtype, words, 0, words.strides * 2)


def lanes_inside(argument: Argument, ptrs: Outer, keep: Any) -> Lanes | None:
    """Where the lanes of a load lie in their tensor; None where one that is kept does not, or that has to be told lane by lane.

    Args:
        argument: the tensor.
        ptrs: the pointers.
        keep: the lanes that are not masked off, broadcastable to the pointers.
    """
    if argument.size != ptrs.size:
        return None
    rows = argument.places(ptrs.pointers, signed=True)
    found = _rows_inside(argument, rows, ptrs, keep)
    if found is not None:
        return found
    places = rows + ptrs.offsets.astype(np.int64, copy=False)
    strange = argument.strange(places.view(np.uint64))
    return Lanes(argument, places) if strange is None or not count_nonzero(strange & keep) else None


def rows_inside(argument: Argument, ptrs: Outer, keep: Any) -> Lanes | None:
    """The same of whole rows alone: None where a row is not masked off, or kept, in one piece."""
    if argument.size != ptrs.size:
        return None
    return _rows_inside(argument, argument.places(ptrs.pointers, signed=True), ptrs, keep)


def _rows_inside(argument: Argument, rows: Any, ptrs: Outer, keep: Any) -> Lanes | None:
    width = ptrs.shape[-1]
    if argument.extent < width or not all(map(operator.le, keep.shape, rows.shape)):
        return None
    first = ptrs.first_column()
    if first is None:
        return None
    starts = rows + first if first else rows
    whole = count_nonzero(keep) == keep.size
    if not whole:
        starts = np.where(keep, starts, 0)
    last = np.maximum.reduce(starts.view(np.uint64), axis=None)  # one before the tensor is beyond every other
    if last > argument.extent - width or not (argument.own is None or argument.owns_rows(starts, width)):
        return None
    return Lanes(argument, starts[..., 0], width, whole)


def outside(argument: Argument, at: Any) -> Any:
    """Which addresses are not of the tensor's elements, a bool array."""
    found = argument.strange(argument.places(at))
    return np.zeros(at.shape, bool) if found is None else found


def where_outside(argument: Argument, address: int) -> str:
    """Where an address outside the tensor's elements lies, in words."""
    element = argument.element(address)
    if element < 0:
        return f"{-element} elements before the tensor"
    if element >= argument.extent:
        return f"{element - argument.extent + 1} elements past the end of the tensor"
    return "in a gap between the elements of the tensor"

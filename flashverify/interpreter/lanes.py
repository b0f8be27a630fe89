"""Where the lanes of a load or store lie in their tensor: each lane, or the first one of each row."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from flashverify.interpreter.late import Outer
    from flashverify.interpreter.memory import Argument

__all__ = ["Lanes", "lanes_inside"]


class Lanes(NamedTuple):
    """Lanes of a load or store that belong to one tensor.

    Attributes:
        argument: the tensor.
        places: see `Argument.places`; of the first lane of each row, where there are rows.
        width: lanes of a row, which follow each other in memory; 0 where `places` are those of single lanes.
    """

    argument: Argument
    places: Any
    width: int = 0

    def taken(self, words: Any) -> Any:
        """The elements of the lanes; anything in lanes that are outside the tensor, which are masked off.

        Args:
            words: see `Argument.words`.
        """
        if not self.width:
            return words.take(self.places.view(np.int64), mode="clip")
        count = words.size - self.width + 1
        rows = np.ndarray((count, self.width), words.dtype, words, 0, words.strides * 2)
        return rows[np.minimum(np.maximum(self.places, 0), count - 1)]


def lanes_inside(argument: Argument, ptrs: Outer, keep: Any) -> Lanes | None:
    """Where the lanes of a load lie in their tensor; None where one that is kept does not, or that has to be told lane by lane.

    Args:
        argument: the tensor.
        ptrs: the pointers.
        keep: the lanes that are not masked off, broadcastable to the pointers.
    """
    if argument.size != ptrs.size:
        return None
    rows, width = argument.places(ptrs.pointers, signed=True), ptrs.shape[-1]
    if (
        all(map(operator.le, keep.shape, rows.shape))
        and argument.extent >= width
        and (first := ptrs.first_column()) is not None
    ):
        starts = rows + first
        kept = starts if np.count_nonzero(keep) == keep.size else starts[np.broadcast_to(keep, starts.shape)]
        if not kept.size or (
            np.minimum.reduce(kept, axis=None) >= 0
            and np.maximum.reduce(kept, axis=None) <= argument.extent - width
            and (argument.own is None or argument.owns_rows(kept, width))
        ):
            return Lanes(argument, starts[..., 0], width)
    places = rows + ptrs.offsets.astype(np.int64, copy=False)
    strange = argument.strange(places.view(np.uint64))
    return Lanes(argument, places) if strange is None or not np.count_nonzero(strange & keep) else None

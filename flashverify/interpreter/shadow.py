"""Who wrote and who read each element of a storage during one launch, and what else the sanitizer knows of memory."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.formats import is_float
from flashverify.interpreter.late import spread
from flashverify.interpreter.numerics import as_array
from flashverify.sparse_memory import zeros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.interpreter.lanes import Lanes
    from flashverify.interpreter.memory import Argument
    from flashverify.interpreter.ordering import Order
    from flashverify.interpreter.reports import Watch

__all__ = ["Shadow", "State", "extreme"]

_LANES = 1 << 20
_EXTREMES = {"nan": np.nan, "high": 3e38, "low": -3e38}


class Shadow:
    """Writers of the elements of one storage: the segment of a program (`Order`), negative after an atomic operation, 0 for nobody.

    Args:
        start: address of the storage.
        nbytes: its size.
        shift: log2 of the size of an element.
        order: of the programs of the launch.

    Attributes:
        size: elements.
        released: per element what was released through it, for `Order`; None before the first release.
    """

    def __init__(self, start: int, nbytes: int, shift: int, order: Order) -> None:
        self._start, self.size, self._shift, self._order = start, nbytes >> shift, shift, order
        self._writers: Any = None
        self._waiting: tuple[Lanes, Any, Any] | None = None  # the one store so far: its rows and the segment of each
        self._loads: list[tuple[Any, Any, Any, Any]] = []
        self._room = _LANES
        self.released: Any = None

    def places(self, at: Any, keep: Any) -> Any:
        """The elements at the addresses of lanes that are kept, `[lanes]`."""
        return self._at(at[keep]).reshape(-1)

    def _at(self, at: Any) -> Any:
        return ((at - np.uint64(self._start)) >> np.uint64(self._shift)).view(np.int64)

    def claim(self, at: Any, keep: Any, owners: Any, *, atomic: bool) -> Iterator[tuple[Any, int]]:
        """Note a store; yield the lanes whose element another program has written in no order with it, and the first of those writers.

        Args:
            at: addresses, all inside the storage where `keep`.
            keep: which lanes are stored.
            owners: segments of the lanes, broadcastable.
            atomic: whether others' atomic operations are no conflict.
        """
        stored = count_nonzero(keep)
        if not stored:
            return
        writers, whole = self._written(), stored == keep.size
        places = self._at(at if whole else at[keep]).reshape(-1)
        own = spread(owners, at.shape)
        own = (own if whole else own[keep]).reshape(-1)
        before = writers[places]
        clash = np.zeros(before.shape, bool)
        if count_nonzero(before):
            clash = (before != 0) & (before != own)
        if count_nonzero(clash):
            clash[clash] = self._order.apart(before[clash], own[clash])
        if atomic:
            clash &= before > 0
            writers[places] = -own
        else:
            writers[places] = own
            after = writers[places]
            again = after != own  # two programs of this very store
            if count_nonzero(again):
                before = np.where(clash, before, after)
                clash |= again
        if count_nonzero(clash):
            bad = np.zeros(at.shape, bool)
            bad[keep] = clash
            yield bad, int(before[clash.argmax()])

    def claim_rows(self, lanes: Lanes, keep: Any, owners: Any) -> bool:
        """Note a store of whole rows; nothing, and False, where somebody has written there, or two programs of this very store do.

        Args:
            lanes: of the store, all of them inside the storage where `keep`.
            keep: which rows are stored, broadcastable to them, with an axis of 1 behind.
            owners: segments of the rows, broadcastable.
        """
        places, own = lanes.places, spread(owners, lanes.places.shape)
        if not lanes.whole:
            kept = spread(keep[..., 0], places.shape)
            places, own = places[kept], own[kept]
        if not places.size:
            return True
        if self._writers is None and self._waiting is None and _disjoint(places, lanes.width):
            self._waiting = lanes, places, own
            return True
        writers = self._rows(self._written(), lanes)
        if count_nonzero(writers[places]):
            return False
        writers[places] = own[..., None]
        if count_nonzero(writers[places] != own[..., None]):
            writers[places] = 0
            return False
        return True

    def _written(self) -> Any:
        """The writers of all elements, those of the store that waits among them."""
        if self._writers is None:
            self._writers = zeros(self.size, np.int32)
        if self._waiting is not None:
            (lanes, places, own), self._waiting = self._waiting, None
            self._rows(self._writers, lanes)[places] = own[..., None]
        return self._writers

    def _rows(self, writers: Any, lanes: Lanes) -> Any:
        """The writers of what each row of the tensor of `lanes` may begin at, see `Lanes.rows`."""
        argument = lanes.argument
        first = (argument.base - self._start) >> self._shift
        return lanes.rows(writers[first : first + argument.extent])

    def note(self, access: Any, ptrs: Any, mask: Any, owners: Any, lanes: int) -> None:
        """Remember a load until the end of the launch, while there is room.

        Args:
            access: given back by `races`.
            ptrs: the handle of the pointers.
            mask: that of the lanes that are loaded.
            owners: segments of the lanes, broadcastable; 0 where all programs load the same.
            lanes: how many there are.
        """
        self._room -= lanes
        if self._room > 0:
            self._loads.append((access, ptrs, mask, owners))

    def races(self) -> Iterator[tuple[Any, Any, Any, int]]:
        """Loads of elements that another program wrote in no order with them: (access, addresses, lanes, the first writer)."""
        if not self._loads or (self._writers is None and self._waiting is None):
            return
        writers = self._written()
        for access, ptrs, mask, owners in self._loads:
            at, keep = ptrs.data, as_array(mask)
            places = np.where(keep, self._at(at), 0)
            found = np.where(keep, writers[places], 0)
            bad = (found != 0) & (found != owners)
            if bad.any() and np.any(owners):
                by = np.broadcast_to(owners, found.shape)[bad]
                bad[bad] = self._order.apart(found[bad], by)
            if bad.any():
                yield access, at, bad, int(found.flat[bad.argmax()])

    def forget(self) -> None:
        """The launch is over: loads name their arguments, which would hold their tensors until a collection of garbage."""
        self._loads.clear()
        self._waiting = None


class State:
    """What the sanitizer knows of one tensor of one launch.

    Attributes:
        is_input: whether the launch must not write to it.
        poison: the bits of elements that nobody has written, or None.
    """

    __slots__ = ("_order", "_shadow", "_shadows", "_storage", "is_input", "poison")

    def __init__(
        self, argument: Argument, watched: Watch, shadows: dict[tuple[int, int], Shadow], order: Order
    ) -> None:
        self._storage = argument.tensor.untyped_storage()
        self._shadows, self._order = shadows, order
        self._shadow: Shadow | None = None
        start = self._storage.data_ptr()
        self.is_input = start in watched.inputs
        word = watched.poison(argument.tensor) if watched.poison is not None and not self.is_input else None
        self.poison = None if word is None else _bits(word, argument.size)

    def shadow(self, argument: Argument) -> Shadow:
        """Of its storage: made where somebody notes an access.

        Args:
            argument: the tensor.
        """
        if self._shadow is None:
            start = self._storage.data_ptr()
            found = self._shadows.get((start, argument.size))
            if found is None:
                found = Shadow(start, self._storage.nbytes(), argument.shift, self._order)
                self._shadows[start, argument.size] = found
            self._shadow = found
        return self._shadow


def _disjoint(places: Any, width: int) -> bool:
    """Whether no two rows of `width` elements that begin at these places have one in common."""
    ordered = np.sort(places, axis=None)
    return ordered.size < 2 or int((ordered[1:] - ordered[:-1]).min()) >= width


@functools.cache
def _bits(word: int, size: int) -> Any:
    """A signed integer as the bits of an element of `size` bytes."""
    return np.array(word % (1 << 8 * size)).astype(f"u{size}")


def extreme(dtype: np.dtype[Any], fill: str) -> Any:
    """A value that shows: for floats what `fill` says, for integers a large negative one, which ends loops and reaches no memory."""
    if is_float(dtype):
        limit = 6e4 if dtype.name == "float16" else 3e38
        value = np.clip(_EXTREMES[fill], -limit, limit)
        return np.array(value).astype(dtype)
    if dtype.kind == "b":
        return np.True_
    return dtype.type(np.iinfo(dtype).min + 0x5A)

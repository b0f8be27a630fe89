"""Launches that need not run: one that would load what an earlier one loaded stores what that one stored.

What a launch does is determined by its kernel, its grid, its arguments and the elements that it loads, for a kernel sees no address
but through them. So a launch is known by these. Elements that it did not load, those of a padding say, may be any others. The first
element that differs from what the earlier launch loaded has the launch run.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter.hooks import tl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.interpreter.lanes import Lanes
    from flashverify.interpreter.layer import Launch
    from flashverify.interpreter.memory import Argument

__all__ = ["Known", "Notes", "Repeats", "key_of"]

_KEPT = 48
"""Launches that are known: those of the passes over one case."""
_ROOM = 1 << 20
"""Elements that are kept of one launch."""
_VALUES = frozenset({int, bool, str, type(None)})


@dataclass(slots=True)
class Notes:
    """What a launch loads and stores while it runs.

    Attributes:
        key: see `key_of`.
        loads: the lanes of each load, and which of them are not masked off.
        stores: the lanes of each store, the bits that it stores, and which lanes it does store.
        opaque: whether it does something else, or has something reported.
        room: elements that may still be kept.
    """

    key: Any
    loads: list[tuple[Lanes, Any]] = field(default_factory=list)
    stores: list[tuple[Lanes, Any, Any]] = field(default_factory=list)
    opaque: bool = False
    room: int = _ROOM
    _begun: tuple[int, int] = (0, 0)

    def load(self, lanes: Lanes | None, keep: Any) -> None:
        """Take in a load; None are lanes of which nobody knows where they lie."""
        if lanes is None:
            self.opaque |= bool(np.count_nonzero(keep))
            return
        self.room -= lanes.places.size
        if self.room > 0:
            self.loads.append((lanes, keep))

    def store(self, lanes: Lanes | None, data: Any, keep: Any) -> None:
        """Take in a store, likewise."""
        if lanes is None or data.dtype.itemsize != lanes.argument.size:
            self.opaque |= bool(np.count_nonzero(keep))
            return
        self.room -= 2 * lanes.places.size
        if self.room > 0:
            self.stores.append((lanes, data.view(f"u{data.dtype.itemsize}"), keep))

    def begin(self) -> None:
        """An attempt begins."""
        self._begun = (len(self.loads), len(self.stores))

    def undo(self) -> None:
        """Forget what was taken in since then."""
        loads, stores = self._begun
        del self.loads[loads:], self.stores[stores:]

    def known(self, arguments: Sequence[Argument]) -> Known | None:
        """What is kept of the launch; None where it loads from what it stores to, or more than there is room for."""
        number = {id(argument): n for n, argument in enumerate(arguments)}
        loaded = {number[id(lanes.argument)] for lanes, _ in self.loads}
        stored = {number[id(lanes.argument)] for lanes, *_ in self.stores}
        room = self.room - sum(arguments[n].extent for n in loaded)
        if self.opaque or room <= 0 or _storages(arguments, loaded) & _storages(arguments, stored):
            return None
        return Known(
            before={n: _bits(arguments[n]).copy() for n in loaded},
            loads=[(number[id(lanes.argument)], lanes, keep) for lanes, keep in self.loads],
            stores=[
                (number[id(lanes.argument)], lanes.places.view(np.int64), data, keep)
                for lanes, data, keep in self.stores
            ],
        )


@dataclass(slots=True)
class Known:
    """What is kept of a launch.

    Attributes:
        before: by number of the argument, the bits of every tensor that it loaded from, from the first element to the last.
        loads: numbers of arguments, lanes, and which of these are not masked off.
        stores: numbers of arguments, places, bits, and which of these are stored, in order.
    """

    before: dict[int, Any]
    loads: list[tuple[int, Lanes, Any]]
    stores: list[tuple[int, Any, Any, Any]]
    _read: dict[int, Any] = field(default_factory=dict)

    def holds(self, arguments: Sequence[Argument], poisons: dict[int, Any]) -> bool:
        """Whether a launch with these arguments would load the same, and nothing that nobody wrote.

        Args:
            arguments: of that launch.
            poisons: by number of an argument, the bits of its elements that nobody wrote, where it has such bits.
        """
        for n, before in self.before.items():
            now = _bits(arguments[n])
            changed = now != before
            if (poison := poisons.get(n)) is not None:
                changed |= now == poison
            if np.count_nonzero(changed) and np.count_nonzero(changed & self._loaded(n)):
                return False
        return True

    def repeat(self, arguments: Sequence[Argument]) -> None:
        """Store what the launch stored."""
        for n, places, data, keep in self.stores:
            words = _bits(arguments[n])
            if np.count_nonzero(keep) == keep.size:
                words[places] = data
            else:
                words[places[keep]] = data[keep]

    def _loaded(self, number: int) -> Any:
        """Which elements of an argument were loaded."""
        if not self._read:
            self._read = {n: np.zeros(before.size, bool) for n, before in self.before.items()}
            for n, lanes, keep in self.loads:
                _mark(self._read[n], lanes, keep)
            self.loads.clear()
        return self._read[number]


def _mark(read: Any, lanes: Lanes, keep: Any) -> None:
    """Mark the elements of lanes that are not masked off."""
    if lanes.width:
        rows = np.ndarray((read.size - lanes.width + 1, lanes.width), bool, read, 0, read.strides * 2)
        rows[lanes.places[np.broadcast_to(keep, (*lanes.places.shape, 1))[..., 0]]] = True
    else:
        places = lanes.places.view(np.int64)
        read[places[np.broadcast_to(keep, places.shape)]] = True


def _bits(argument: Argument) -> Any:
    """The memory of a tensor, from the first element to the last, as unsigned integers."""
    return argument.words(np.dtype(f"u{argument.size}"))


def _storages(arguments: Sequence[Argument], numbers: Iterable[int]) -> set[int]:
    return {arguments[n].tensor.untyped_storage().data_ptr() for n in numbers}


class Repeats:
    """The launches that are known, the last ones that were met."""

    def __init__(self) -> None:
        self._known: OrderedDict[Any, Known] = OrderedDict()

    def find(self, key: Any) -> Known | None:
        """The launch of a key."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def keep(self, key: Any, known: Known) -> None:
        """Know a launch in place of another one of its key."""
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def forget(self) -> None:
        """Know none."""
        self._known.clear()


def key_of(function: Any, launch: Launch, inputs: Any) -> Any:
    """What tells launches apart besides the elements of their tensors; None where that cannot be told.

    Args:
        function: the kernel.
        launch: of it.
        inputs: addresses of the storages that it must not write to.
    """
    storages: dict[int, int] = {}
    parts: list[Any] = [function, launch.grid]
    for leaf in launch.leaves:
        x = leaf[1]
        kind = x.__class__
        if kind in _VALUES:
            parts += (kind, leaf)
        elif isinstance(x, torch.Tensor):
            start = x.untyped_storage().data_ptr()
            place = (storages.setdefault(start, len(storages)), x.storage_offset(), start in inputs)
            parts.append((leaf[0], x.dtype, x.shape, x.stride(), *place))
        elif kind is float:
            parts.append((leaf[0], x.hex()))
        elif kind is tl.dtype:
            parts.append((leaf[0], str(x)))
        else:
            return None
    return None if _described(launch.raw.values()) else tuple(parts)


def _described(values: Iterable[Any]) -> bool:
    """Whether a tensor descriptor is among the arguments of a launch: its block is none of the leaves."""
    for x in values:
        if x.__class__ not in _VALUES and (_described(x) if isinstance(x, tuple) else isinstance(x, TensorDescriptor)):
            return True
    return False

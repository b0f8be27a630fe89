"""Launches that need not run: one that would load what an earlier one loaded stores what that one stored.

What a launch in lockstep does is determined by its kernel, its grid, its arguments and the elements that it loads: a kernel sees an
address only where it makes an integer of it, and such launches are not kept. Elements that a launch does not load, those of a padding
say, may be any others. The first element that differs from what the earlier launch loaded has the launch run.

The order of programs decides nothing: a launch in which two store to one place, or one loads what another stores, is not kept.

Nobody is spared a launch unless `Watch.known` is given. The pass whose launches are noted (`Watch.kept`) gives none: each of its
launches runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flashverify.interpreter.counting import count_nonzero
from flashverify.interpreter.hooks import tl
from flashverify.interpreter.late import spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.interpreter.lanes import Lanes
    from flashverify.interpreter.layer import Launch
    from flashverify.interpreter.memory import Argument

__all__ = ["Known", "Launches", "Notes", "key_of"]

_ROOM = 1 << 20
"""Lanes that one launch may load and store, and elements that its tensors may span."""
_BYTES = 1 << 25
"""Memory that the launches of one pass may take."""
_ALIGNED = 16
"""Bytes that a base of a descriptor must be a multiple of: the only thing that a kernel learns of an address."""
_VALUES = frozenset({int, bool, str, type(None)})


@dataclass(slots=True)
class Notes:
    """What a launch loads and stores while it runs.

    Attributes:
        key: see `key_of`.
        loads: the lanes of each load, and which of them are not masked off.
        stores: likewise.
        opaque: whether it does something else, so that it is not kept.
        room: lanes that may still be noted.
    """

    key: Any
    loads: list[tuple[Lanes, Any]] = field(default_factory=list)
    stores: list[tuple[Lanes, Any]] = field(default_factory=list)
    opaque: bool = False
    room: int = _ROOM
    _begun: tuple[int, int] = (0, 0)

    def note(self, accesses: list[tuple[Lanes, Any]], lanes: Lanes | None, keep: Any) -> None:
        """Take in a load or a store; None are lanes of which nobody knows where they lie."""
        if lanes is None:
            self.opaque |= bool(count_nonzero(keep))
            return
        self.room -= lanes.places.size
        if self.room >= 0:
            accesses.append((lanes, keep))

    def begin(self) -> None:
        """An attempt begins."""
        self._begun = (len(self.loads), len(self.stores))

    def undo(self) -> None:
        """Forget what was taken in since then."""
        loads, stores = self._begun
        del self.loads[loads:], self.stores[stores:]

    def known(self, arguments: Sequence[Argument]) -> Known | None:
        """What is kept of the launch; None where that is not all of it, or where it loads from what it stores to."""
        if self.opaque or self.room < 0:
            return None
        loaded, stored = (_touched(arguments, accesses) for accesses in (self.loads, self.stores))
        if loaded is None or stored is None or not _apart(arguments, loaded, stored):
            return None
        return Known(*({n: _Elements(arguments[n], mask) for n, mask in each.items()} for each in (loaded, stored)))


class _Elements:
    """Some elements of a tensor, and what they held.

    Attributes:
        places: of the elements.
        bits: of each of them.
    """

    __slots__ = ("bits", "places")

    def __init__(self, argument: Argument, mask: Any) -> None:
        (self.places,) = mask.nonzero()
        self.bits = _bits(argument).take(self.places)

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return int(self.places.nbytes + self.bits.nbytes)


@dataclass(frozen=True, slots=True)
class Known:
    """What is kept of a launch.

    Attributes:
        loaded: by number of the argument, the elements that it loaded.
        stored: likewise those that it stored, as it left them.
    """

    loaded: dict[int, _Elements]
    stored: dict[int, _Elements]

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return sum(elements.nbytes for each in (self.loaded, self.stored) for elements in each.values())

    def holds(self, arguments: Sequence[Argument], poisons: dict[int, Any]) -> bool:
        """Whether a launch with these arguments would load the same, and nothing that nobody wrote.

        Args:
            arguments: of that launch.
            poisons: by number of a loaded argument, the bits of its elements that nobody wrote; None where it has no such bits.
        """
        if not _apart(arguments, self.loaded, self.stored):
            return False
        for n, elements in self.loaded.items():
            if count_nonzero(_bits(arguments[n]).take(elements.places) != elements.bits):
                return False
            if poisons[n] is not None and count_nonzero(elements.bits == poisons[n]):
                return False
        return True

    def repeat(self, arguments: Sequence[Argument]) -> None:
        """Store what the launch stored."""
        for n, elements in self.stored.items():
            _bits(arguments[n])[elements.places] = elements.bits


def _touched(arguments: Sequence[Argument], accesses: list[tuple[Lanes, Any]]) -> dict[int, Any] | None:
    """By number of the argument, which elements are accessed; None where its tensors span too many."""
    number = {id(argument): n for n, argument in enumerate(arguments)}
    masks: dict[int, Any] = {}
    room = _ROOM
    for lanes, keep in accesses:
        n = number[id(lanes.argument)]
        if not lanes.argument.extent:
            continue
        if n not in masks:
            room -= lanes.argument.extent
            if room < 0:
                return None
            masks[n] = np.zeros(lanes.argument.extent, bool)
        _mark(masks[n], lanes, keep)
    return masks


def _mark(touched: Any, lanes: Lanes, keep: Any) -> None:
    """Mark the elements of lanes that are not masked off."""
    places = lanes.places.view(np.int64)
    if lanes.width:
        rows = np.ndarray((touched.size - lanes.width + 1, lanes.width), bool, touched, 0, touched.strides * 2)
        rows[places[spread(keep[..., 0], places.shape)]] = True
    else:
        touched[places[spread(keep, places.shape)]] = True


def _bits(argument: Argument) -> Any:
    """The memory of a tensor, from the first element to the last, as unsigned integers."""
    return argument.words(np.dtype(f"u{argument.size}"))


def _apart(arguments: Sequence[Argument], loaded: Iterable[int], stored: Iterable[int]) -> bool:
    """Whether no tensor that is stored to reaches into one that is loaded from, or into another one that is stored to."""
    stored = sorted(stored)
    spans = [(x.base, x.base + (x.extent << x.shift)) for x in arguments]
    pairs = ((n, m) for n in stored for m in (*loaded, *(other for other in stored if other > n)))
    return all(spans[n][1] <= spans[m][0] or spans[m][1] <= spans[n][0] for n, m in pairs)


class Launches:
    """The launches of one pass, for later passes that may load the same. They live as long as whoever asks for these passes."""

    def __init__(self) -> None:
        self._known: dict[Any, Known | None] = {}
        self._room = _BYTES

    def __contains__(self, key: Any) -> bool:
        return key in self._known

    def find(self, key: Any) -> Known | None:
        """The launch of a key; None where none is known, or where it is not kept."""
        return self._known.get(key)

    def keep(self, key: Any, known: Known | None) -> None:
        """Know a launch, or that those of its key are not kept."""
        if known is not None:
            self._room -= known.nbytes
        self._known[key] = known if self._room >= 0 else None


def key_of(function: Any, launch: Launch, inputs: Any) -> Any:
    """What tells launches apart besides the elements of their tensors; None where that cannot be told.

    Args:
        function: the kernel.
        launch: of it.
        inputs: addresses of the storages that it must not write to.
    """
    parts: list[Any] = [function, launch.grid, *launch.raw]
    return tuple(parts) if not function.__closure__ and _append(parts, launch.raw.values(), inputs, {}) else None


def _append(parts: list[Any], values: Iterable[Any], inputs: Any, storages: dict[int, int]) -> bool:
    """Whether all values can be told from others; `parts` takes what does, with the class and the length of each tuple."""
    for x in values:
        kind = x.__class__
        if kind in _VALUES:
            parts.append((kind, x))
        elif kind is float and x == x:
            parts.append((kind, x.hex()))
        elif isinstance(x, torch.Tensor):
            start = x.untyped_storage().data_ptr()
            place = (storages.setdefault(start, len(storages)), x.storage_offset(), x.data_ptr() % _ALIGNED)
            parts.append((x.dtype, x.shape, x.stride(), *place, start in inputs))
        elif isinstance(x, tuple):
            parts.append((kind, len(x)))
            if not _append(parts, x, inputs, storages):
                return False
        elif kind is tl.dtype:
            parts.append((kind, str(x)))
        else:
            return False
    return True

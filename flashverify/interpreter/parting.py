"""Programs in lockstep that walk a loop different numbers of times: those that are done wait behind it for the others.

Arrays hold the programs that still walk; at the end each name gets what it was for each program when that program was done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from flashverify.interpreter.hooks import handle, tl
from flashverify.interpreter.late import spread
from flashverify.interpreter.layer import Diverged
from flashverify.interpreter.parted_values import MISSING, CannotError, part, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Parting", "bounds_of", "whole_values"]

_LARGEST = np.iinfo(np.int32).max


def _integers(value: Any) -> Any:
    """What an end of a range is in each program, int64 `[programs or 1]`; None where it is no integer."""
    if value.__class__ is tl.core.constexpr:
        value = value.value
    if value.__class__ is int:
        return np.array([value])
    if value.__class__ is not tl.core.tensor or value.numel.value != 1:
        return None
    data = value.handle.data.reshape(-1)
    return data.astype(np.int64) if data.dtype.kind == "i" else None


def _single(value: Any) -> bool:
    """Whether an end of a range is one number for all programs."""
    if value.__class__ is tl.core.tensor:
        return bool(value.handle.data.size == 1)
    return (value.value if value.__class__ is tl.core.constexpr else value).__class__ is int


def bounds_of(callee: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, Any, int] | None:
    """First values, numbers of turns (int64 `[programs or 1]` each) and the step of a range; None where nothing is to be parted.

    Args:
        callee: what makes the range.
        args: of it.
        named: likewise.
    """
    if not (callee is range or callee is tl.range) or not 0 < len(args) <= 3 or {"arg1", "arg2", "step"} & {*named}:
        return None
    if all(map(_single, args)):
        return None
    found = [_integers(x) for x in ((0, *args) if len(args) == 1 else args)]
    if any(x is None for x in found) or max(x.size for x in found[:2]) == 1:
        return None
    start, stop, step = (*found, np.array([1]))[:3]
    if step.size > 1 or step[0] <= 0:
        return None
    turns = np.maximum(0, -((start - stop) // step))
    return spread(start, turns.shape), turns, int(step[0])


class Parting:
    """A loop that programs walk from different places, or different numbers of times.

    Args:
        b: the builder.
        carried: names that the body assigns to and whose values are needed after a turn.
        read: names that it reads alone.
        start: what each program begins with, `[programs]`.
        turns: how often it walks the loop, `[programs]`.
        step: by which it counts.

    Attributes:
        turn: see `Together`.
        parted: likewise.
    """

    def __init__(
        self, b: Any, carried: tuple[str, ...], read: tuple[str, ...], start: Any, turns: Any, step: int
    ) -> None:
        self._b, self._carried, self._read = b, carried, read
        self._start, self._turns, self._step = start, turns, step
        self._outer = (b.programs, b.places, b.active)
        self._alive = self._next = np.arange(len(turns))
        self._done: list[tuple[Any, Any, dict[str, Any]]] = []
        self._whole: dict[str, Any] = {}
        self.turn = self.parted = False

    def __iter__(self) -> Iterator[Any]:
        alike = bool((self._start == self._start[0]).all())
        for number in range(int(self._turns.max())):
            self._next = np.flatnonzero(self._turns > number)
            self.turn = len(self._next) != len(self._alive)
            at = self._start[self._next] + number * self._step
            yield int(at[0]) if alike else self._tensor(at)

    def _tensor(self, at: Any) -> Any:
        """The places that programs are at, as a tensor: its `//` and `%` are those of Python's numbers only from 0 on."""
        if at.min() < 0 or at.max() > _LARGEST:
            self._end()
        return tl.tensor(handle(at.astype(np.int32), tl.int32), tl.int32)

    def narrow(self, now: dict[str, Any]) -> dict[str, Any]:
        """The values of the names for the programs that go on.

        Args:
            now: local variables of the kernel.
        """
        goes, programs = np.isin(self._alive, self._next), len(self._alive)
        kept = np.flatnonzero(goes)
        if not self.parted:
            self._whole = {name: now.get(name, MISSING) for name in self._read}
        self._keep(now, np.flatnonzero(~goes))
        try:
            found = {n: part(now.get(n, MISSING), kept, programs) for n in (*self._carried, *self._read)}
        except CannotError:
            self._end()
        self._alive, self.turn, self.parted = self._next, False, True
        outer, places, active = self._outer
        self._b.programs = outer[self._alive]
        self._b.places = tuple(x[self._alive] for x in places)
        self._b.active = self._alive if active is None else active[self._alive]
        return found

    def widen(self, now: dict[str, Any]) -> dict[str, Any]:
        """The values of the names for all programs, behind the loop.

        Args:
            now: local variables of the kernel.
        """
        self._keep(now, np.arange(len(self._alive)))
        self._restore()
        try:
            found = {name: whole([(*at, x[name]) for *at, x in self._done], len(self._turns)) for name in self._carried}
        except CannotError:
            self._end()
        return found | self._whole

    def _keep(self, now: dict[str, Any], rows: Any) -> None:
        """Note what the names are for programs that are done: `rows` of those that walked so far."""
        self._done.append((self._alive[rows], rows, {name: now.get(name, MISSING) for name in self._carried}))

    def _restore(self) -> None:
        self._b.programs, self._b.places, self._b.active = self._outer

    def _end(self) -> NoReturn:
        """Have the programs run apart, by what they walk.

        Raises:
            Diverged: always.
        """
        self._restore()
        raise Diverged(self._start * (int(self._turns.max()) + 1) + self._turns)


def whole_values(values: Any, active: Any, programs: int) -> Any:
    """What all programs of an attempt decide by, where some of them decide and the others wait.

    Args:
        values: of those that decide.
        active: their places among all; None where they are all.
        programs: how many there are.
    """
    if active is None or len(values) != len(active):
        return values
    found = np.zeros(programs, np.int64)
    found[active] = 1 + np.unique(values, return_inverse=True)[1]
    return found

"""What comes before what among the programs of a launch: order is made by atomic operations that release and acquire.

The clock of a program says how many releases of every other program it has seen. A program runs in segments, which end where it
releases. An access of one program comes before one of another where the segment of the first is released and the other program has seen
that before its own access (Lamport's "happened before", with the vector clocks of Fidge and Mattern). What is not so ordered may
happen in either order on a GPU, in whichever order the interpreter ran it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from flashverify.interpreter.shadow import Shadow

__all__ = ["Order"]

_ROOM = 1 << 24
"""Entries of all clocks of a launch; beyond it everything that later segments do counts as ordered."""


class Order:
    """The segments of the programs of one launch.

    Segment `p + 1` is the first one of program `p`; those after a release have larger numbers.

    Args:
        programs: of the launch.
    """

    def __init__(self, programs: int) -> None:
        self._count = programs
        self._programs: list[int] = []
        self._epochs: list[int] = []
        self._seen: list[Any] = []
        self._now: dict[int, int] = {}
        self._clocks: list[Any] = [None]

    def segment(self, program: int) -> int:
        """The segment in which a program is now."""
        return self._now.get(program, program + 1)

    @property
    def plain(self) -> bool:
        """Whether every program is in its first segment, so that nothing is ordered."""
        return not self._now

    def programs(self, segments: Any) -> Any:
        """The programs of segments, of either sign; -1 of segment 0, which is nobody's."""
        numbers = np.abs(segments)
        if self.plain:
            return numbers - 1
        table = np.concatenate([np.arange(-1, self._count), np.array(self._programs, np.int64)])
        return table[numbers]

    def acquire(self, program: int, shadow: Shadow, places: Any) -> None:
        """The program sees what was released through the elements at `places`, and everything that was seen there."""
        if shadow.released is None or self._full:
            return
        found = [self._clocks[number] for number in np.unique(shadow.released[places]) if number]
        if found:
            self._enter(program, np.maximum.reduce([self._clock(program), *found]), self._epoch(program))

    def release(self, program: int, shadow: Shadow, places: Any) -> None:
        """What the program did is seen by those who acquire the elements at `places`; a later release there takes nothing back."""
        if self._full:
            return
        if shadow.released is None:
            shadow.released = np.zeros(shadow.size, np.int32)
        epoch = self._epoch(program) + 1
        clock = self._clock(program).copy()
        clock[program] = epoch
        before = [self._clocks[number] for number in np.unique(shadow.released[places]) if number]
        self._clocks.append(np.maximum.reduce([clock, *before]))
        shadow.released[places] = len(self._clocks) - 1
        self._enter(program, clock, epoch)

    def apart(self, one: Any, two: Any) -> Any:
        """Whether accesses of two segments, arrays of one shape, are of different programs and in no order."""
        different = (one != 0) & (two != 0) & (self.programs(one) != self.programs(two))
        if self.plain or not different.any():
            return different
        codes = np.abs(one).astype(np.int64) << 32 | np.abs(two)
        pairs, inverse = np.unique(codes[different], return_inverse=True)
        free = [not self._ordered(int(pair >> 32), int(pair & 0xFFFF_FFFF)) for pair in pairs]
        different[different] = np.array(free)[inverse.reshape(-1)]
        return different

    def _ordered(self, one: int, two: int) -> bool:
        return self._before(one, two) or self._before(two, one) or (self._full and max(one, two) > self._count)

    def _before(self, one: int, two: int) -> bool:
        if two <= self._count:
            return False
        late = one - self._count - 1
        program, epoch = (self._programs[late], self._epochs[late]) if late >= 0 else (one - 1, 0)
        return bool(self._seen[two - self._count - 1][program] > epoch)

    @property
    def _full(self) -> bool:
        return len(self._seen) * self._count > _ROOM

    def _clock(self, program: int) -> Any:
        number = self._now.get(program)
        return np.zeros(self._count, np.int32) if number is None else self._seen[number - self._count - 1]

    def _epoch(self, program: int) -> int:
        number = self._now.get(program)
        return 0 if number is None else self._epochs[number - self._count - 1]

    def _enter(self, program: int, clock: Any, epoch: int) -> None:
        self._programs.append(program)
        self._epochs.append(epoch)
        self._seen.append(clock)
        self._now[program] = self._count + len(self._seen)

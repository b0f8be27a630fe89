"""The time of a diagnosis: seconds of work. A machine that is busy with other things makes it longer, up to a limit, and not poorer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.starvation import starved_here

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Clock", "End"]


class Clock:
    """Seconds of work since it was made: all but those in which the machine had no processor for it.

    What the subject waits for counts, such as a GPU or other processes, and so do the seconds of all threads once. Where the system does
    not say how long work waited for a processor, every second counts.

    Args:
        slowest: of a second on the wall clock so much counts at least. What ends after n seconds of work ends after n / slowest seconds,
            however busy the machine is.
        wall: seconds, monotonic.
        starved: those of them in which there was no processor for it, likewise.
    """

    def __init__(
        self,
        slowest: float = 1.0,
        *,
        wall: Callable[[], float] = time.monotonic,
        starved: Callable[[], float] = starved_here,
    ) -> None:
        self._slowest, self._wall, self._starved = slowest, wall, starved
        self._begun, self._waited, self._last = wall(), starved(), 0.0

    @classmethod
    def ending(cls, seconds: float, limit: float) -> Clock:
        """One that counts `seconds` within `limit` seconds on the wall clock at the latest; a limit that is not longer is the wall clock itself."""
        return cls(min(1.0, seconds / limit) if limit > 0 else 1.0)

    def __call__(self) -> float:
        """The seconds so far."""
        passed = self._wall() - self._begun
        waited = self._starved() - self._waited
        self._last = max(self._last, passed - waited, self._slowest * passed)
        return self._last

    def end(self, seconds: float) -> End:
        """When so many more are over."""
        return End(self, self() + seconds)


@dataclass(frozen=True, slots=True)
class End:
    """When to stop.

    Attributes:
        clock: that counts.
        at: seconds of it.
    """

    clock: Clock
    at: float

    @property
    def over(self) -> bool:
        """Whether it is past."""
        return self.clock() > self.at

    @property
    def left(self) -> float:
        """Seconds until then; less than 0 where it is past."""
        return self.at - self.clock()

    def part(self, share: float) -> End:
        """When `share` of what is left now is over."""
        return self.clock.end(share * self.left)

    def within(self, seconds: float) -> End:
        """This one, or after so many seconds from now where that is earlier."""
        return End(self.clock, min(self.at, self.clock() + seconds))

    def after(self, seconds: float) -> End:
        """This one, or after so many seconds from now where that is later."""
        return End(self.clock, max(self.at, self.clock() + seconds))

"""How much of its time a worker lets torch compile in."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TracePace"]

_FREE = 90.0
"""Seconds in which a worker opens one kind after the other."""
_GROWING_AT_FIRST = 0.25
"""Share of these seconds for what cases of open kinds ask for besides: other classes of lengths, and other calls of their checks."""
_OPENING, _GROWING = 0.06, 0.04
"""Shares of the time from then on."""


@dataclass
class TracePace:
    """The seconds that torch took in one worker.

    Attributes:
        opening: for the first case of a kind.
        growing: for everything else.
        opened: kinds.
    """

    opening: float = 0.0
    growing: float = 0.0
    opened: int = 0
    _at_first: tuple[float, float] | None = None

    def spend(self, seconds: float, *, opening: bool) -> None:
        """Torch compiled."""
        if opening:
            self.opening += seconds
        else:
            self.growing += seconds

    def may_open(self, elapsed: float) -> bool:
        """Whether one more kind may be opened, which takes as long as those before it.

        Args:
            elapsed: seconds since the worker began.
        """
        if elapsed < _FREE or not self.opened:
            return True
        spent = self.opening - self._settled()[0] + self.opening / self.opened
        return spent <= _OPENING * (elapsed - _FREE)

    def may_grow(self, elapsed: float) -> bool:
        """Whether torch may compile something else; `elapsed` as in `may_open`."""
        if elapsed < _FREE:
            return self.growing <= _GROWING_AT_FIRST * elapsed
        return self.growing - self._settled()[1] <= _GROWING * (elapsed - _FREE)

    def _settled(self) -> tuple[float, float]:
        """What was spent when the first seconds were over."""
        self._at_first = self._at_first or (self.opening, self.growing)
        return self._at_first

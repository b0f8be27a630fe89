"""Two failures on changed cases: whether what takes away the one takes away the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

__all__ = ["Agreement"]

_GONE = 2
"""Changes that have to take both away."""
_CHANCE = 0.05
"""Probability at which chance does not explain that both were gone together."""


@dataclass(slots=True)
class Agreement:
    """How often a case that shows two failures showed which of them after it was changed in one respect.

    Attributes:
        both: cases that showed both.
        first: that showed the first one alone.
        second: that showed the second one alone.
        neither: that showed neither.
    """

    both: int = 0
    first: int = 0
    second: int = 0
    neither: int = 0

    def add(self, first: bool, second: bool) -> None:
        """A changed case was judged."""
        self.both += first and second
        self.first += first and not second
        self.second += second and not first
        self.neither += not (first or second)

    @property
    def denied(self) -> bool:
        """Whether the second failure was seen without the first one."""
        return self.second > 0

    @property
    def words(self) -> str:
        """Why the second failure has the cause of the first one; empty where nothing says so."""
        gone = self.first + self.neither
        if self.denied or self.neither < _GONE or self.first > self.both:
            return ""
        every = self.both + gone
        chance = comb(gone, self.neither) / comb(every, self.neither)
        if chance > _CHANCE:
            return ""
        return f"gone with it on {self.neither} of {every} changed cases, and never seen without it"

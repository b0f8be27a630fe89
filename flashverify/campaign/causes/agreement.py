"""Two failures on changed cases: whether what takes away the one takes away the other.

Two defects of one feature are both gone without it. So changes of two different kinds have to take both failures away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb

__all__ = ["Agreement"]

_KINDS = 2
"""Kinds of changes that have to take both away."""
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
        kinds: the changes that took both away, by what they changed.
    """

    both: int = 0
    first: int = 0
    second: int = 0
    neither: int = 0
    kinds: set[str] = field(default_factory=set)

    def add(self, first: bool, second: bool, kind: str) -> None:
        """A changed case was judged.

        Args:
            first: whether it showed the first failure.
            second: whether it showed the second one.
            kind: the one thing that was changed; empty for several.
        """
        if kind and not (first or second):
            self.kinds.add(kind)
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
        if self.denied or len(self.kinds) < _KINDS or self.first > self.both:
            return ""
        every = self.both + gone
        chance = comb(gone, self.neither) / comb(every, self.neither)
        if chance > _CHANCE:
            return ""
        return f"gone with it on {self.neither} of {every} changed cases, and never seen without it"

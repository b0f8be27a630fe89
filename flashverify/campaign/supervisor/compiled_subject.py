"""What of one subject of a search on a GPU is compiled, and what waits to be."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from flashverify.campaign.supervisor.waiting import Waiting

__all__ = ["CompiledSubject"]

_DOUBTED = 32
"""Drawn cases that may be put off, more than were judged, before no kind counts as ready that this search did not compile itself."""


@dataclass(slots=True)
class CompiledSubject:
    """What is ready of one subject.

    Attributes:
        next: the first kind that nobody compiles yet.
        total: kinds that there are; None while nobody said so.
        ready: kinds that are drawn from.
        supposed: those of them that an earlier search compiled, and this one not yet.
        missed: drawn cases that were put off.
        answered: cases that were judged.
        listed: cases of the corpus that wait.
        origins: what the results of these are marked with, until workers can have them.
        waiting: drawn cases that wait.
        out: cases of both that are being compiled.
        judged: cases that wait or are being compiled for the sake of others: they were judged without some check.
        turn: which source comes next.
    """

    next: int = 0
    total: int | None = None
    ready: list[int] = field(default_factory=list)
    supposed: set[int] = field(default_factory=set)
    missed: int = 0
    answered: int = 0
    listed: deque[str] = field(default_factory=deque)
    origins: dict[str, str] = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)
    out: dict[str, None] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    turn: int = 0

    def doubt(self) -> None:
        """A drawn case was put off: of many, what an earlier search compiled is no longer there."""
        self.missed += 1
        if self.missed > _DOUBTED + self.answered:
            self.ready = [kind for kind in self.ready if kind not in self.supposed]
            self.supposed.clear()

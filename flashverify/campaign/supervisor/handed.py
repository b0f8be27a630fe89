"""Cases of the corpus that workers can have: at once, or, of subjects that torch traces, one at a time and spread over the search."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Chunk

__all__ = ["Handed"]

_EVERY = 1500
"""Judged cases between two that torch has to compile for: of 14 workers that judge 150 a second about one compiles for them."""


class Handed:
    """Both sorts, each in its order.

    Attributes:
        spaced: cases of the second sort that wait.
    """

    def __init__(self) -> None:
        self._now: deque[Chunk] = deque()
        self.spaced: deque[Chunk] = deque()
        self._due = 0

    def __bool__(self) -> bool:
        return bool(self._now or self.spaced)

    def add(self, chunk: Chunk, *, spaced: bool) -> None:
        """Cases that wait from now on; `spaced` says of which sort."""
        if spaced:
            self.spaced.extend(msgspec.structs.replace(chunk, cases=(text,), sparing=True) for text in chunk.cases)
        else:
            self._now.append(chunk)

    def next(self, answered: int, *, last: bool) -> Chunk | None:
        """Cases for a worker; None where none are due.

        Args:
            answered: cases that were judged so far.
            last: nothing else is left to judge.
        """
        if self._now:
            return self._now.popleft()
        if not self.spaced or (answered < self._due and not last):
            return None
        self._due = answered + _EVERY
        return self.spaced.popleft()

"""The batches of a search: which were handed out, what of each was answered, and how many cases each may still judge."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import Answered
from flashverify.campaign.store.notes import Claims
from flashverify.campaign.supervisor.shard import WHOLE, Shard
from flashverify.judge.ratios import ratios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flashverify.judge.verdict import CaseResult

__all__ = ["Batches", "Grant", "batch_seed"]

_ATTEMPTS = 3
"""Workers in a row that may die over a batch without an answer before it is given up."""


def batch_seed(seed: int, subject: str, batch: int) -> int:
    """Seed of a batch, the same on every machine and for every number of workers."""
    data = json.dumps([seed, subject, batch]).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Grant:
    """A batch to hand out.

    Args:
        number: of the batch.
        most: cases of it that may be judged, those of `answered` included.
        answered: its first cases, which are not judged again.
    """

    number: int
    most: int
    answered: tuple[Answered, ...]


@dataclass(slots=True)
class _Open:
    """A batch of which something is left, or whose last results are not stored yet."""

    answered: dict[str, Answered] = field(default_factory=dict)
    closest: dict[str, float] = field(default_factory=dict)
    stored: int = 0
    most: int = 0
    whole: int = 0
    out: bool = False
    ended: bool = False
    fruitless: int = 0

    @property
    def promised(self) -> int:
        """Cases that were judged or may be."""
        return self.most if self.out else len(self.answered)

    def note(self, result: CaseResult) -> None:
        """Of the ratios those are kept that a climber would remember."""
        nearer = {label: r for label, r in ratios(result).items() if r > self.closest.get(label, 0.0)}
        self.closest |= nearer
        self.answered[result.case] = Answered(result.case, nearer)
        self.fruitless = 0


class Batches:
    """A batch is the same cases in the same order whoever draws it, so that it can be gone on with from any of them.

    With a limit, the run judges the first cases of the batches in the order of their numbers, whichever worker has which: a batch may use
    what is certainly left by those before it. Of several shards each takes those before it as full.

    Args:
        size: cases of a batch.
        claims: what a run that is resumed had handed out.
        subjects: how many take turns.
        shard: whose batches are handed out.
        fixed: whether a batch is so. Otherwise what it draws depends on what is compiled, and a limit counts the cases of all batches alike.
    """

    def __init__(
        self, size: int, claims: Claims, subjects: int = 1, shard: Shard = WHOLE, *, fixed: bool = True
    ) -> None:
        self._size, self._subjects, self._shard, self._fixed = size, subjects, shard, fixed
        self._next = claims.batches
        self._ended: dict[int, int] = {}  # by number, cases that were judged
        self._open: dict[int, _Open] = {n: _Open() for n in claims.open or () if 0 <= n < self._next}

    def resumed(self, number: int, count: int, results: Callable[[], Iterable[CaseResult]]) -> None:
        """Stored results of a batch, read where the batch is open. One that the note of what was handed out does not know was lost with it, and goes on."""
        if number >= self._next:
            self._open |= {n: _Open() for n in range(self._next, number + 1) if self._own(n)}
            self._next = number + 1
        if number not in self._open:
            self._ended[number] = self._ended.get(number, 0) + count
            return
        for result in results():
            self.answered(number, result)
            self.stored(number)

    def answered(self, number: int, result: CaseResult) -> None:
        """A case of a batch was judged."""
        if number in self._open:
            self._open[number].note(result)
        else:
            self._ended[number] = self._ended.get(number, 0) + 1

    def stored(self, number: int) -> None:
        """The result of a case is in the store."""
        if number in self._open:
            self._open[number].stored += 1
            self._settle(number)

    def _own(self, number: int) -> bool:
        return self._shard.has_batch(number, self._subjects)

    @property
    def _first_new(self) -> int:
        """The first batch of this shard that was not handed out."""
        return self._new(1)[0]

    def _new(self, count: int) -> list[int]:
        """The first batches of this shard that were not handed out."""
        own = (number for number in itertools.count(self._next) if self._own(number))
        return list(itertools.islice(own, count))

    def own(self, room: int) -> int:
        """Cases of the first `room` of all batches that are of this shard."""
        batches = range(-(-room // self._size))
        return sum(min(self._size, room - number * self._size) for number in batches if self._own(number))

    def _settle(self, number: int) -> None:
        state = self._open[number]
        if state.ended and state.stored >= len(state.answered):
            self._ended[number] = len(state.answered)
            del self._open[number]

    def next(self, room: int | None, sizes: tuple[int, ...] = ()) -> Grant | None:
        """The first batch that has cases to judge, noted as handed out; None where there is no room for any.

        Args:
            room: cases that all batches together may judge; None is no limit.
            sizes: cases that a batch of each subject has now, in the order of the subjects; 0 where none can be handed out. Such a batch
                stays open behind those that are. Empty is the size of all.
        """
        sizes = sizes or (self._size,)
        for number in (*sorted(self._open), *self._new(len(sizes))):
            state, size = self._open.get(number) or _Open(), sizes[number % len(sizes)]
            most = min(size, self._allowance(number, room))
            if state.out or state.ended or most <= len(state.answered):
                continue
            state.out, state.most, state.whole = True, int(most), size
            self._open |= {n: _Open() for n in range(self._next, number) if self._own(n)} | {number: state}
            self._next = max(self._next, number + 1)
            return Grant(number, state.most, tuple(state.answered.values()))
        return None

    def some_left(self, room: int | None, *, out: bool = False) -> bool:
        """Whether `next` would give one; with `out`, whether a batch that is handed out has cases left counts too."""
        return any(
            min(self._size, self._allowance(number, room)) > len(state.answered)
            for number, state in (*self._open.items(), (self._first_new, _Open()))
            if (out or not state.out) and not state.ended
        )

    def _allowance(self, number: int, room: int | None) -> float:
        """Cases of a batch that are among the first `room` of all, however many those before it still judge."""
        if room is None:
            return math.inf
        if not self._fixed:
            own = self._open.get(number) or _Open()
            return room - self.promised + own.promised
        if self._shard.of > 1:
            return max(0, room - number * self._size)
        before = sum(count for n, count in self._ended.items() if n < number)
        before += sum(len(s.answered) if s.ended else self._size for n, s in self._open.items() if n < number)
        others = sum(self._ended.values())
        others += sum(s.promised for n, s in self._open.items() if n != number)
        return min(room - before, room - others)

    def done(self, number: int, *, stopped: bool) -> int:
        """A worker is done with a batch; how many cases it has been.

        Args:
            number: of the batch.
            stopped: whether the worker was told to stop.
        """
        state = self._open[number]
        state.out = False
        count = len(state.answered)
        state.ended = not stopped and (count < state.most or count >= state.whole)
        self._settle(number)
        return count

    def lost(self, number: int, *, blamed: bool = True) -> bool:
        """A worker died over a batch, which goes on with another; False where it is given up because one after the other died.

        Args:
            number: of the batch.
            blamed: whether that counts.
        """
        state = self._open[number]
        state.out = False
        state.fruitless += blamed
        state.ended = state.fruitless >= _ATTEMPTS
        given_up = state.ended
        self._settle(number)
        return not given_up

    @property
    def promised(self) -> int:
        """Cases of all batches that were judged or may be, as far as they are handed out."""
        return sum(self._ended.values()) + sum(state.promised for state in self._open.values())

    @property
    def answers(self) -> int:
        """Cases of all batches that were judged."""
        return sum(self._ended.values()) + sum(len(state.answered) for state in self._open.values())

    def claims(self, seconds: float, waiting: dict[str, tuple[str, ...]]) -> Claims:
        """What is to be noted, beside the cases that wait."""
        return Claims(self._next, round(seconds, 3), tuple(sorted(self._open)), waiting)

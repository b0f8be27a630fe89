"""Which task a free worker gets next."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.protocol import Batch, CaseList, Chunk, Task
from flashverify.campaign.store.origins import batch_of
from flashverify.campaign.supervisor.batches import batch_seed
from flashverify.campaign.supervisor.config import CampaignConfig
from flashverify.campaign.supervisor.lists import CORPUS
from flashverify.campaign.supervisor.shard import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.supervisor.journal import Journal
    from flashverify.campaign.supervisor.readiness import Readiness
    from flashverify.judge.verdict import CaseResult

__all__ = ["CampaignConfig", "Schedule", "batch_seed"]

_READY_BATCH = 40
"""Cases of a batch of a subject whose kernels are compiled ahead: the next batch knows more kinds."""


class Schedule:
    """Hands out tasks: listings first, then findings to explain (beside a search), then cases, then findings of a matrix.

    Listed cases come in the order in which they were listed, the corpus before the matrix, and both before what is drawn.

    Args:
        config: of the campaign.
        journal: what was handed out before, and where it is noted.
        readiness: what is compiled, where kernels are compiled ahead.
    """

    def __init__(self, config: CampaignConfig, journal: Journal, readiness: Readiness | None = None) -> None:
        self._config = config
        self._journal, self._readiness = journal, readiness
        self._lists, self._batches, self._compiled = journal.lists, journal.batches, journal.compiled
        self.stopped = False
        self._listings: deque[Task] = deque(self._lists.unlisted())
        self._chunks: deque[Task] = deque()
        self._take_lists()
        self._barren = 0

    @property
    def total(self) -> int | None:
        """Cases to judge, of this shard; None where that is not known."""
        if self._config.kind == "run":
            return self._lists.own
        if self._config.shard == WHOLE or self._room is None:
            return self._config.max_cases
        return self._lists.own + self._batches.own(self._room)

    def listed(self, spec: str, cases: tuple[str, ...], *, corpus: bool = False) -> None:
        """The matrix of a subject is known, or what it accepts of the corpus."""
        self._lists.listed(spec, cases, corpus=corpus)
        self._journal.note_lists()
        self._take_lists()

    def _take_lists(self) -> None:
        """Lists whose cases can be handed out; those of the corpus are compiled first, where anything is."""
        for chunk in self._lists.chunks():
            if self._readiness is not None and chunk.origin.startswith(f"{CORPUS} "):
                self._readiness.listed(chunk)
            else:
                self._chunks.append(chunk)

    def answered(self, task: Batch | Chunk, result: CaseResult) -> CaseResult:
        """A case of a task was judged; its result, marked with where it belongs."""
        marked = msgspec.structs.replace(result, origin=task.origin)
        if isinstance(task, Batch):
            self._batches.answered(task.number, marked)
        elif (spec := self._compiled.spec_of(task.origin)) is not None:
            self._compiled.answered(spec, result.case)
        return marked

    def stored(self, result: CaseResult) -> None:
        """A result is in the store."""
        if (number := batch_of(result.origin)) is not None:
            self._batches.stored(number)
        elif (spec := self._compiled.spec_of(result.origin)) is not None:
            self._compiled.stored(spec, result.case)
        elif result.origin:
            self._lists.stored(result.origin, result.case)
        else:
            self._journal.unmarked += 1

    def batch_ended(self, task: Batch, *, stopped: bool, put_off: int = 0) -> None:
        """A worker is done with a batch, or was told to stop. Three in a row without a case, put off or not: the space is exhausted."""
        count = self._batches.done(task.number, stopped=stopped)
        self._barren = 0 if count or stopped or put_off else self._barren + 1
        self.stopped = self.stopped or self._barren >= 3

    def lost(self, task: Task, answered: int, *, blamed: bool = True) -> bool:
        """A worker is gone that had answered for so many cases of `task`, the deadly one included.

        Args:
            task: what it had.
            answered: cases.
            blamed: whether the task may be why.

        Returns:
            Whether another worker gets the rest.
        """
        if isinstance(task, CaseList):
            self._listings.append(task)
        elif isinstance(task, Chunk) and task.cases[answered:]:
            self._chunks.appendleft(Chunk(task.subject, task.cases[answered:], task.plan, task.origin))
        elif isinstance(task, Batch):
            return self._batches.lost(task.number, blamed=blamed)
        return True

    def next(
        self,
        busy: bool,
        quarantine: Callable[[str], tuple[str, ...]],
        *,
        explain: Callable[[], Task | None] = lambda: None,
        beside: bool = False,
    ) -> Task | None:
        """The next task.

        Args:
            busy: whether another worker is still judging cases.
            quarantine: the deadly cases of a subject.
            explain: gives the next task about findings; None where there is none now.
            beside: whether findings are explained while cases wait.
        """
        if self._listings and not self.stopped:
            return self._listings.popleft()
        if (beside or self.stopped or not (self._chunks or busy)) and (task := explain()) is not None:
            return task
        if self.stopped:
            return None
        if self._chunks:
            return self._chunks.popleft()
        if self._config.kind == "run" or self._waits_for_lists:
            return None
        return self._compiled_chunk() or self._batch(quarantine)

    def _compiled_chunk(self) -> Chunk | None:
        """Cases that were compiled ahead, as far as there is room for them beside the batches that are handed out."""
        if self._readiness is None:
            return None
        room = self._room
        chunk = self._readiness.chunk(None if room is None else max(0, room - self._batches.promised))
        if chunk is not None and self._compiled.spec_of(chunk.origin) is not None:
            self._compiled.promised += len(chunk.cases)
        return chunk

    def _kinds(self, spec: str) -> tuple[int, ...] | None:
        """What a batch of a subject is drawn from: kinds that are compiled, which may be none yet; None is everything."""
        return None if self._readiness is None else self._readiness.kinds(spec)

    def _traced(self, spec: str) -> bool:
        """Whether workers draw what they have compiled themselves."""
        return self._readiness is not None and spec in self._readiness.traced

    def _size(self, spec: str) -> int:
        """Cases of a batch of a subject."""
        kinds = self._kinds(spec)
        if self._traced(spec):
            return min(self._config.batch, _READY_BATCH)
        return self._config.batch if kinds is None else min(self._config.batch, _READY_BATCH) if kinds else 0

    def _batch(self, quarantine: Callable[[str], tuple[str, ...]]) -> Batch | None:
        sizes = tuple(map(self._size, self._config.subjects)) if self._readiness is not None else ()
        if (grant := self._batches.next(self._room, sizes)) is None:
            return None
        self._journal.note_batches()
        spec = self._journal.spec_of(grant.number)
        return Batch(
            spec,
            grant.number,
            batch_seed(self._config.seed, spec, grant.number),
            self._size(spec),
            quarantine(spec),
            grant.most,
            grant.answered,
            grant.number < len(self._config.subjects),
            self._config.profile,
            self._kinds(spec),
            self._readiness is None,
            self._traced(spec),
        )

    @property
    def _waits_for_lists(self) -> bool:
        """Whether the cases that are left for drawing are not known."""
        return self._config.max_cases is not None and not self._lists.known

    @property
    def _room(self) -> int | None:
        """Cases that batches may judge in all; None is no limit."""
        return self._room_beside(self._compiled.promised)

    def _room_beside(self, compiled: int) -> int | None:
        """The same where so many cases that were compiled ahead count."""
        most = self._config.max_cases
        return None if most is None else max(0, most - self._lists.size - self._journal.unmarked - compiled)

    @property
    def cases_wait(self) -> bool:
        """Whether a list of cases waits, or is still to be made; batches of a search aside."""
        compiled = self._readiness is not None and self._readiness.lists_wait
        return not self.stopped and bool(self._listings or self._chunks or compiled)

    @property
    def draws_wait(self) -> bool:
        """Whether a batch could be handed out now."""
        if self._config.kind == "run" or self.stopped or self._waits_for_lists:
            return False
        return self._batches.some_left(self._room)

    @property
    def part(self) -> str:
        """What was judged of the cases that were to be judged, in words; empty where that is all of them, or time was the only limit."""
        lists, compiled = self._lists.part(), self._compiled.judged
        room = self._room_beside(compiled)
        if lists or room is None or self._config.kind == "run" or not self._batches.some_left(room, out=True):
            return lists
        judged = self._lists.own + self._journal.unmarked + compiled + self._batches.answers
        return f"{judged:,} of {self.total:,} cases judged"

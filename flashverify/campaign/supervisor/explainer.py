"""What is done about findings: each is put to the causes that are known before any time goes into minimising it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flashverify.campaign.causes.book import CauseBook
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, symptom
from flashverify.campaign.protocol import Attribute, Minimise
from flashverify.campaign.supervisor.events import FindingFolded, FindingMinimal, FindingSeen

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from flashverify.campaign.protocol import Attributed, Minimal
    from flashverify.campaign.supervisor.budget import Explaining
    from flashverify.campaign.supervisor.ledger import Ledger
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Explainer"]

_VERIFYING = 60.0
"""Seconds that verifying and diagnosing one finding may take, beside shrinking it."""
_ATTEMPTS = 3
"""Times that a finding is minimised before it is left as it is, when the worker dies over it."""


class Explainer:
    """Hands out the tasks about findings, one at a time for each subject, and keeps what they say.

    Args:
        config: of the campaign.
        ledger: of the campaign.
        time: that explaining may take.
        tell: called with `FindingSeen`, `FindingMinimal` and `FindingFolded`.
        elapsed: seconds since the start of the campaign.
    """

    def __init__(
        self,
        config: CampaignConfig,
        ledger: Ledger,
        time: Explaining,
        tell: Callable[[msgspec.Struct], None],
        elapsed: Callable[[], float],
    ) -> None:
        self._config, self._ledger, self._time, self._tell, self._elapsed = config, ledger, time, tell, elapsed
        tally = ledger.tally
        self._book = CauseBook(tally.records, tally.owners, tally.seen)
        self._tasks: dict[int, Minimise | Attribute] = {}
        self._answered: Counter[int] = Counter()
        self._attempts: Counter[Key] = Counter()
        self._turns: Counter[str] = Counter()

    def waits(self, searching: bool) -> bool:
        """Whether a task waits and there is time for it."""
        return self.next(searching) is not None

    def next(self, searching: bool) -> Minimise | Attribute | None:
        """The next task; None where there is none, or no time for it."""
        most = self._config.shrink_seconds + _VERIFYING
        free = self._free_subjects()
        folding = self._time.next_slice(most, searching=searching, folding=True) if free else 0.0
        if folding == 0:
            return None
        for subject in free:
            if (found := self._book.question(subject)) is not None:
                return Attribute(*found, folding)
        limit = self._time.next_slice(most, searching=searching)
        waiting = [r for r in self._book.waiting() if r.key.subject in free and self._attempts[r.key] < _ATTEMPTS]
        if waiting and limit != 0:
            return self._minimisation(min(waiting, key=lambda record: self._turns[record.key.check]), limit)
        for subject in free:
            if (found := self._book.further_question(subject)) is not None and limit != 0:
                return Attribute(*found, limit)
        return None

    def _free_subjects(self) -> list[str]:
        """The subjects with findings that no worker is busy with."""
        busy = {_finding(task).subject for task in self._tasks.values()}
        return [s for s in dict.fromkeys(key.subject for key in self._ledger.tally.records) if s not in busy]

    def _minimisation(self, record: FindingRecord, limit: float | None) -> Minimise:
        shrinking = self._config.shrink_seconds if limit is None else min(self._config.shrink_seconds, limit / 2)
        hang = record.verdict.check == "hang"  # every repeat and every candidate of a hang costs the whole time limit
        others = self._book.known(record.key.subject) if record.key.cause else []
        named = {cause.key: cause.diagnosis for cause in others if cause.diagnosis is not None and cause.diagnosis.name}
        return Minimise(
            record.subject_spec,
            record.key,
            record.case,
            record.first,
            record.verdict,
            shrinking if self._config.shrink and not hang else 0.0,
            1 if hang else self._config.repeats,
            self._ledger.tally.quarantine(record.subject_spec),
            limit,
            known=tuple(named.values()),
            apart=tuple(c.key for c in others if c.key not in named and symptom(c.key) != symptom(record.key)),
            undiagnosed=self._attempts[record.key] > 0,
        )

    def began(self, worker: int, task: Minimise | Attribute) -> None:
        """A worker was given a task."""
        self._tasks[worker] = task
        self._answered[worker] = 0
        self._time.begin(worker, task.limit)
        if isinstance(task, Minimise):
            self._attempts[task.key] += 1
            self._turns[task.key.check] += 1

    def ended(self, worker: int) -> None:
        """A worker is done with its task; nothing where that was about cases."""
        self._time.end(worker)
        task = self._tasks.pop(worker, None)
        if isinstance(task, Attribute) and not self._answered[worker]:
            self._book.answer(task.cause.key, task.asked[0], "")  # no answer in the time given is none
        if task is not None:
            self._open(_finding(task).subject)

    def lost(self, worker: int) -> None:
        """A worker died over its task: a finding is stored as it is now, a failure that it was asked about counts as another one."""
        task, answered = self._tasks.pop(worker, None), self._answered[worker]
        self._time.end(worker)
        if isinstance(task, Minimise):
            self._ledger.rewrite(self._ledger.tally.records[task.key])
        elif task is not None and answered < len(task.asked):
            self._book.answer(task.cause.key, task.asked[answered], "")

    def minimal(self, event: Minimal) -> None:
        """A finding was minimised: from now on it is a known cause, unless its diagnosis is that of another one."""
        record = self._ledger.minimal(event)
        self._book.explained(record.key)
        same = self._same_diagnosis(record)
        self._tell(FindingMinimal(record))
        if same is not None:
            self._fold(record.key, same.key, "the same diagnosis")

    def _same_diagnosis(self, record: FindingRecord) -> FindingRecord | None:
        """The cause that has the same diagnosis, though it did not account for the case as it was first seen."""
        found = record.diagnosis
        if found is None or not found.name or record.key.check not in TOLD_BY_VALUES:
            return None
        others = (cause for cause in self._book.known(record.key.subject) if cause.key != record.key)
        same = (found.name, found.conditions)
        named = ((cause, cause.diagnosis) for cause in others if cause.diagnosis is not None)
        return next((cause for cause, words in named if (words.name, words.conditions) == same), None)

    def attributed(self, worker: int, event: Attributed) -> None:
        """A known cause accounts for a failure, or does not."""
        self._answered[worker] += 1
        self._book.answer(event.cause, event.asked, event.why)
        key, leading = event.asked.key, self._book.sighting(event.asked.key)
        waits = key in self._ledger.tally.records and not self._book.is_known(key)
        if event.why and waits and leading is not None and leading.case == event.asked.case:
            self._fold(key, event.cause, event.why)

    def _fold(self, key: Key, cause: Key, why: str) -> None:
        record = self._ledger.fold(key, cause, why)
        self._book.forget(key)
        self._tell(FindingFolded(record, next(folded for folded in record.folded if folded.key == key)))

    def _open(self, subject: str) -> None:
        """A further case of a bucket that no known cause accounts for is a finding of its own, once no bucket waits that may be its cause."""
        if any(record.key.subject == subject for record in self._book.waiting()):
            return
        if (found := self._book.unexplained(subject)) is not None:
            key, sighting = found
            like = self._book.owner_of(sighting.key)
            self._tell(FindingSeen(self._ledger.found(key, sighting, like, self._elapsed())))


def _finding(task: Minimise | Attribute) -> Key:
    """The finding that a task is about."""
    return task.key if isinstance(task, Minimise) else task.cause.key

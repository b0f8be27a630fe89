"""What is done about findings: each is put to the causes that are known before any time goes into minimising it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.campaign.protocol import (
    Attribute,
    Attributed,
    Compared,
    Improved,
    Mended,
    Minimal,
    Minimise,
    OfFinding,
    Profile,
    Reconsidered,
    Retried,
    Separated,
    Shown,
)
from flashverify.campaign.supervisor.agenda import Agenda
from flashverify.campaign.supervisor.events import FindingMinimal, FindingReconsidered, FindingSeen
from flashverify.campaign.supervisor.minimisation import Explains, finding_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.supervisor.budget import Explaining
    from flashverify.campaign.supervisor.ledger import Ledger
    from flashverify.campaign.supervisor.schedule import CampaignConfig

__all__ = ["Explainer"]


class Explainer:
    """Hands out the tasks about findings, one at a time for each subject, and keeps what they say.

    Args:
        config: of the campaign.
        ledger: of the campaign.
        time: that explaining may take.
        tell: called with `FindingSeen`, `FindingMinimal`, `FindingReconsidered` and `FindingFolded`.
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
        self._ledger, self._time, self._tell, self._elapsed = ledger, time, tell, elapsed
        self._tasks: dict[int, Explains] = {}
        self._unanswered: dict[int, list[Sighting]] = {}
        self._agenda = agenda = Agenda(config, ledger, time, tell)
        self._book, self._folding, self._second = agenda.book, agenda.folding, agenda.second
        self._shown = agenda.shown
        self._said: dict[type, Callable[[Any], None]] = {
            Minimal: self._minimal,
            Compared: self._compared,
            Separated: agenda.experiments.ended,
            Shown: self._shown.add,
            Reconsidered: self._reconsidered,
            Mended: self._mended,
            Retried: agenda.retrying.ended,
        }

    def waits(self, searching: bool) -> bool:
        """Whether a task waits and there is time for it."""
        return self.next(searching) is not None

    def next(self, searching: bool) -> Explains | None:
        """The next task; None where there is none, or no time for it."""
        busy = {finding_of(task).subject for task in self._tasks.values()}
        return self._agenda.next(busy, searching)

    def began(self, worker: int, task: Explains) -> None:
        """A worker was given a task."""
        self._tasks[worker] = task
        self._unanswered[worker] = list(task.asked) if isinstance(task, Attribute) else []
        self._time.begin(worker, task.limit)
        self._agenda.began(task)

    def ended(self, worker: int) -> None:
        """A worker is done with its task; nothing where that was about cases."""
        self._time.end(worker)
        task, left = self._tasks.pop(worker, None), self._unanswered.pop(worker, [])
        if isinstance(task, Attribute) and not task.trials:
            self._book.looked(task.cause.key, task.asked)
        elif isinstance(task, Attribute) and len(left) == len(task.asked):
            self._book.answer(task.cause.key, left[0], "", told=False)
        if task is not None:
            self._fold_companions()
            self._second.open(finding_of(task).subject, self._elapsed())

    def lost(self, worker: int, *, blamed: bool = True) -> None:
        """A worker died over its task: a finding is stored as it is now, a failure that it was asked about counts as another one.

        Without `blamed` the task is not why, and is asked again.
        """
        task, left = self._tasks.pop(worker, None), self._unanswered.pop(worker, [])
        self._time.end(worker)
        if isinstance(task, Profile) and not blamed:
            self._folding.profile(task.cause.key)
        elif isinstance(task, Minimise):
            self._agenda.attempts[task.key] -= not blamed
            if self._second.doubted.pop(task.key, None) is None and self._folding.stands(task.key):
                self._ledger.rewrite(self._ledger.tally.records[task.key])
        elif isinstance(task, Attribute) and not task.trials:
            self._book.looked(task.cause.key, task.asked)
        elif task is not None and left and blamed:
            self._book.answer(task.cause.key, left[0], "", told=False)

    def told(self, worker: int, event: OfFinding) -> None:
        """What a worker says of its task: a smaller case of a finding, its minimal one, whose work a failure is, what else a case shows."""
        if isinstance(event, Attributed):
            self._attributed(worker, event)
        elif not isinstance(event, Improved):
            self._said[type(event)](event)
        elif event.key not in self._second.doubted and self._folding.stands(event.key):
            self._ledger.improved(event)

    def _minimal(self, event: Minimal) -> None:
        """A finding was minimised: from now on it is a known cause, unless its diagnosis is that of another one."""
        if (doubted := self._second.doubted.pop(event.key, None)) is not None:
            if (stands := self._second.stand(doubted, event)) is None:
                return
            self._tell(FindingSeen(stands))
        elif not self._folding.stands(event.key):
            return  # it was folded while a worker minimised it
        record = self._ledger.minimal(event)
        self._book.explained(record.key, event.shows or ())
        self._shown.minimal(record, event.shows or ())
        same = self._second.same_diagnosis(record.key, event.diagnosis)
        self._tell(FindingMinimal(record))
        if same is not None:
            self._folding.one(record.key, same.key, "the same diagnosis")
        elif (event.confirmation.failed or not event.confirmation.repeats) and event.key.check not in PROCESS_CHECKS:
            self._folding.profile(record.key)

    def _reconsidered(self, event: Reconsidered) -> None:
        """A finding has a diagnosis that says more, which may be that of another one."""
        if not self._folding.stands(event.key):
            return
        self._tell(FindingReconsidered(self._ledger.renamed(event.key, event.diagnosis)))
        if (same := self._second.same_diagnosis(event.key, event.diagnosis)) is not None:
            self._folding.one(event.key, same.key, "the same diagnosis")

    def _mended(self, event: Mended) -> None:
        """Changes of the source make the subject of a finding right, or none could be looked for."""
        self._agenda.mending.began(event.key)
        if not self._folding.stands(event.key) or not (event.repairs or event.unmended):
            return
        record = self._ledger.mended(event.key, event.repairs, event.unmended)
        self._tell(FindingReconsidered(record))
        if (same := self._second.same_diagnosis(event.key, record.diagnosis)) is not None:
            self._folding.one(event.key, same.key, "the same repair")

    def _attributed(self, worker: int, event: Attributed) -> None:
        """A known cause accounts for a failure, or does not."""
        self._unanswered[worker].remove(event.asked)
        self._book.answer(event.cause, event.asked, event.why, told=event.told, at_work=event.at_work)
        key, leading = event.asked.key, self._book.sighting(event.asked.key)
        waits = key in self._ledger.tally.records and not self._book.is_known(key)
        if event.why and waits and leading is not None and leading.case == event.asked.case:
            self._folding.one(key, event.cause, event.why)

    def _compared(self, event: Compared) -> None:
        """Two explained findings are one, or the clearer one is at work wherever the other one was seen alone."""
        if event.at_work:
            self._book.compared(event.cause, event.found)
        if event.why and all(self._book.is_known(key) for key in (event.cause, event.found)):
            self._folding.one(event.found, event.cause, event.why)

    def end(self) -> None:
        """Nothing is asked any more: what was never seen without another finding goes to that."""
        for late in self._second.end():
            self._tell(FindingSeen(late))
        self._folding.each(self._shown.folds(over=True))
        self._fold_companions(over=True)
        self._folding.each(self._book.remaining.folds())

    def _fold_companions(self, *, over: bool = False) -> None:
        if self._folding.unprofiled and not over:
            return  # what the minimal cases show says more
        self._folding.each(chain(self._shown.same(), self._book.companions(over=over), self._book.needed(over=over)))

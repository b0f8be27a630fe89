"""What is done next about findings, in an order in which what says most for its time comes first."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

from flashverify.campaign.causes.book import CauseBook
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.protocol import Attribute, Compare, Mend, Minimise, Profile, Reconsider, Retry, Separate
from flashverify.campaign.supervisor.experiments import Experiments
from flashverify.campaign.supervisor.folding import Folding
from flashverify.campaign.supervisor.mending import Mending
from flashverify.campaign.supervisor.minimisation import minimisation
from flashverify.campaign.supervisor.retrying import Retrying
from flashverify.campaign.supervisor.second_causes import SecondCauses
from flashverify.campaign.supervisor.second_looks import SecondLooks
from flashverify.campaign.supervisor.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import msgspec

    from flashverify.campaign.supervisor.budget import Explaining
    from flashverify.campaign.supervisor.ledger import Ledger
    from flashverify.campaign.supervisor.minimisation import Explains
    from flashverify.campaign.supervisor.schedule import CampaignConfig
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Agenda"]

_VERIFYING = 60.0
"""Seconds that verifying and diagnosing one finding may take, beside shrinking it."""
_ATTEMPTS = 3
"""Times that a finding is minimised before it is left as it is, when the worker dies over it."""


class Agenda:
    """Chooses the next task about findings.

    Args:
        config: of the campaign.
        ledger: of the campaign.
        time: that explaining may take.
        tell: called with `FindingFolded`.

    Attributes:
        book: of the causes.
        folding: folds two findings that are one.
        shown: what else minimal cases show.
        second: causes that hide behind a bucket.
        mending: whose repairs are looked for.
        retrying: what is judged again with the repair of another finding.
        experiments: with two findings.
        attempts: how often each finding was minimised.
    """

    def __init__(
        self, config: CampaignConfig, ledger: Ledger, time: Explaining, tell: Callable[[msgspec.Struct], None]
    ) -> None:
        tally = ledger.tally
        self._config, self._tally, self._time = config, tally, time
        self.book = book = CauseBook(tally.records, tally.owners, tally.seen, tally.company)
        self.folding = Folding(ledger, book, tell)
        self.shown = ShownBeside(book, tally.owners)
        self.second = SecondCauses(book, ledger, verified=bool(config.repeats))
        self.mending = Mending(book, time, device=config.device)
        self.retrying = Retrying(tally.records, book, self.folding)
        self.experiments = Experiments(book, ledger, self.folding)
        self.attempts: Counter[Key] = Counter()
        self._looks, self._turns = SecondLooks(book, time), Turns()

    def next(self, busy: Collection[str], searching: bool) -> Explains | None:
        """The next task; None where there is none, or no time for it.

        Args:
            busy: subjects with a finding that a worker is busy with.
            searching: cases are still judged.
        """
        self.folding.each(self.shown.folds())
        free = [s for s in dict.fromkeys(key.subject for key in self._tally.records) if s not in busy]
        limit = self._slice(searching, folding=True) if free else 0.0
        if limit == 0:
            return None
        waiting = [record for record in self.book.waiting() if record.key.subject in free]
        return (
            self._profile(waiting, limit)
            or self._minimised([each for each in waiting if self.book.of_its_own(each)], searching)
            or self._whose_name(free, limit)
            or self.retrying.next(free, limit)
            or self.experiments.of_names(free, limit)
            or self._whose_work(free, searching, limit)
            or self._minimised(self.second.waiting(free, waiting), searching)
            or self._between(free, searching, limit)
            or ((self.mending.next(free) or self._looks.next(free)) if searching else None)
        )

    def began(self, task: Explains) -> None:
        """A worker was given a task."""
        if isinstance(task, Minimise):
            self.attempts[task.key] += 1
            self._turns.took(task.key)
        elif isinstance(task, Profile):
            self.folding.unprofiled.remove(task.cause.key)
        elif isinstance(task, Compare):
            self.book.pairs.began(task.cause.key, task.asked[0].key)
        elif isinstance(task, Reconsider):
            self._looks.began(task.cause.key)
        elif isinstance(task, Mend):
            self.mending.began(task.cause.key)
        elif isinstance(task, Retry):
            self.retrying.began(task)
        elif isinstance(task, Separate):
            self.experiments.began(task)

    def _slice(self, searching: bool, *, folding: bool = False) -> float | None:
        return self._time.next_slice(self._config.shrink_seconds + _VERIFYING, searching=searching, folding=folding)

    def _profile(self, waiting: list[FindingRecord], limit: float | None) -> Profile | None:
        """What else a minimal case shows, where a finding waits that may go to it."""
        subjects = {record.key.subject for record in waiting}
        keys = (key for key in self.folding.unprofiled if key.subject in subjects)
        return next((Profile(self._tally.records[key], limit) for key in keys), None)

    def _minimised(self, waiting: list[FindingRecord], searching: bool) -> Minimise | None:
        """One of these is minimised; None where none is left, or no time for it."""
        waiting = [record for record in waiting if self.attempts[record.key] < _ATTEMPTS]
        limit = self._slice(searching) if waiting else 0.0
        if limit == 0:
            return None
        record = self._turns.first(waiting)
        again = self.attempts[record.key] > 0
        return minimisation(self._config, self._tally, self.book, record, limit, again=again)

    def _whose_name(self, free: list[str], limit: float | None) -> Attribute | None:
        """What waits is put to the names that are known, which takes one run: they say more than a repair, whose place may not be the only one."""
        asked = (self.book.question(subject, trials=False, names=True) for subject in free)
        return next((Attribute(*found, limit, trials=False) for found in asked if found is not None), None)

    def _whose_work(self, free: list[str], searching: bool, limit: float | None) -> Explains | None:
        """What waits is put to the causes that are known: first what takes one run at most, then cases are run again in other ways."""
        for subject, trials in product(free, (False, True)):
            if trials and (task := self._before_trials(subject, searching, limit)) is not None:
                return task
            if (found := self.book.question(subject, trials=trials)) is not None:
                return Attribute(*found, limit, trials)
        return None

    def _before_trials(self, subject: str, searching: bool, limit: float | None) -> Explains | None:
        """What is asked before cases are run again in other ways: of a second cause, and once the search is over of two explained findings."""
        if not self.second.doubted and (found := self.book.further_question(subject, silent=True)) is not None:
            return Attribute(*found, limit)
        return None if searching else self.experiments.between((subject,), limit, explained=True)

    def _between(self, free: list[str], searching: bool, limit: float | None) -> Explains | None:
        """Two explained findings are compared, and second causes looked for behind a bucket."""
        for subject in free:
            if (pair := self.book.pair(subject)) is not None:
                return Compare(pair[0], (pair[1],), limit)
        if (two := self.experiments.between(free, limit, explained=searching)) is not None:
            return two
        further = self._slice(searching)
        for subject in free:
            if (found := self.book.further_question(subject)) is not None and further != 0:
                return Attribute(*found, further)
        return None

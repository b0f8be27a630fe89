"""Experiments with two findings: what tells them apart, and whether the name of the one accounts for the other one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import wider
from flashverify.campaign.protocol import Separate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.protocol import Separated
    from flashverify.campaign.supervisor.folding import Folding
    from flashverify.campaign.supervisor.ledger import Ledger

__all__ = ["Experiments"]


class Experiments:
    """Hands them out, each once, and does what they say.

    Args:
        book: of the causes.
        ledger: of the campaign.
        folding: folds two findings that are one.
    """

    def __init__(self, book: CauseBook, ledger: Ledger, folding: Folding) -> None:
        self._remaining, self._ledger, self._folding = book.remaining, ledger, folding

    def of_names(self, subjects: Iterable[str], limit: float | None) -> Separate | None:
        """Asks a name about the minimal case of an explained finding without one; None where every name was."""
        found = (self._remaining.unasked(subject) for subject in subjects)
        return next((Separate(*two, limit, only_name=True) for two in found if two is not None), None)

    def between(self, subjects: Iterable[str], limit: float | None, *, explained: bool) -> Separate | None:
        """Looks for what tells two findings apart; None where nothing is left to try. One of them is explained, or both are."""
        found = (self._remaining.undecided(subject, explained=explained) for subject in subjects)
        return next((Separate(*two, limit) for two in found if two is not None), None)

    def began(self, task: Separate) -> None:
        """One begins, and will not again."""
        self._remaining.separations.began(task.cause.key, task.found.key, only_name=task.only_name)

    def ended(self, event: Separated) -> None:
        """The diagnosis of the one accounts for the minimal case of the other one, or it does not."""
        self._remaining.separations.add(event)
        if not event.accounts or not self._folding.stands(event.cause, event.found):
            return
        records = self._ledger.tally.records
        lead, found = records[event.cause], records[event.found]
        if event.wider and lead.diagnosis is not None:
            self._ledger.renamed(lead.key, wider(lead.diagnosis, found))
        self._folding.one(found.key, lead.key, "the same diagnosis" + " under other conditions" * event.wider)

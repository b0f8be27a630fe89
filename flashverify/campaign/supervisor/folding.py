"""Findings that go to others: one that did is no finding any more, whoever still has its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.supervisor.events import FindingFolded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.supervisor.ledger import Ledger
    from flashverify.judge.verdict import Key

__all__ = ["Folding"]


class Folding:
    """Folds findings, and knows what became of them.

    Args:
        ledger: of the campaign.
        book: of the causes.
        tell: called with `FindingFolded`.

    Attributes:
        unprofiled: explained findings, of which nobody looked yet what else their minimal cases show.
    """

    def __init__(self, ledger: Ledger, book: CauseBook, tell: Callable[[msgspec.Struct], None]) -> None:
        self._ledger, self._book, self._tell = ledger, book, tell
        self.unprofiled: list[Key] = []

    def stands(self, *keys: Key) -> bool:
        """Whether these are findings: none was folded meanwhile."""
        return all(key in self._ledger.tally.records for key in keys)

    def profile(self, key: Key) -> None:
        """A finding is to be profiled, if it is one."""
        if self.stands(key):
            self.unprofiled.append(key)

    def each(self, found: Iterable[tuple[Key, Key, str]]) -> None:
        """Fold one after the other, each before the next one is looked for."""
        for key, cause, why in found:
            self.one(key, cause, why)

    def one(self, key: Key, cause: Key, why: str, *, sure: bool = False) -> None:
        """Fold a finding into another one, or into the one that holds that; nothing where both are one already, or where a diagnosis or a repair tells them apart.

        Args:
            key: of the finding.
            cause: of the other one.
            why: they are one, in words.
            sure: whatever tells them apart.
        """
        cause = self._ledger.tally.owners.get(cause, cause)
        if key == cause or not self.stands(key, cause) or (not sure and self._book.apart(key, cause)):
            return
        record = self._ledger.fold(key, cause, why)
        self._book.forget(key)
        self.unprofiled = [other for other in self.unprofiled if other != key]
        self._tell(FindingFolded(record, next(folded for folded in record.folded if folded.key == key)))

"""Findings that are judged once more with the repair of another one: what that makes right has its cause."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from flashverify.campaign.causes.clearness import clearest_first
from flashverify.campaign.causes.diagnoses import MADE_RIGHT, is_mended
from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.campaign.protocol import Retry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.protocol import Retried
    from flashverify.campaign.supervisor.folding import Folding
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Retrying"]

_MOST = 20.0
"""Seconds for one repair."""
_TIMES = 2
"""Cases of a finding that are judged with it."""
_AT_ONCE = 6
"""Findings that are judged with it together."""


class Retrying:
    """Hands out each pair of a repair and a case of a finding once.

    Args:
        records: the findings by key.
        book: of the causes.
        folding: folds two findings that are one.
    """

    def __init__(self, records: Mapping[Key, FindingRecord], book: CauseBook, folding: Folding) -> None:
        self._records, self._book, self._folding = records, book, folding
        self._asked: defaultdict[tuple[Key, Key], set[str]] = defaultdict(set)

    def next(self, subjects: Collection[str], limit: float | None) -> Retry | None:
        """Asks about findings that were not asked before, the clearest first; None where there is none."""
        for cause in self._records.values():
            if cause.key.subject in subjects and is_mended(cause):
                found = clearest_first(each for each in self._others(cause) if self._is_open(cause.key, each))
                if found:
                    return Retry(cause, tuple(found[:_AT_ONCE]), _MOST if limit is None else min(_MOST, limit))
        return None

    def _is_open(self, cause: Key, found: FindingRecord) -> bool:
        """Whether a finding is still to be judged: once as it was seen first, and once more when it was minimised."""
        asked = self._asked[cause, found.key]
        return found.case not in asked and len(asked) < _TIMES

    def _others(self, cause: FindingRecord) -> Iterator[FindingRecord]:
        for each in self._records.values():
            if each.key != cause.key and each.key.subject == cause.key.subject and each.key.check not in PROCESS_CHECKS:
                yield each

    def began(self, task: Retry) -> None:
        """One begins, and will not again."""
        for each in task.found:
            self._asked[task.cause.key, each.key].add(each.case)

    def ended(self, event: Retried) -> None:
        """A worker judged them."""
        for key in event.right:
            self._folding.one(key, event.cause, MADE_RIGHT, sure=True)
        for key in event.wrong:
            self._book.left_wrong(key, event.cause)

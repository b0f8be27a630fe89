"""Findings of which little was said: each is diagnosed once more in time that nothing else needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import about_values, says_little
from flashverify.campaign.protocol import Reconsider

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.supervisor.budget import Explaining
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["SecondLooks"]

_LEAST, _MOST = 15.0, 25.0
"""Seconds of a second diagnosis: more than the first one had, and less than a case may take."""


class SecondLooks:
    """Which finding is looked at again.

    Args:
        book: of the causes.
        time: that explaining may take.
    """

    def __init__(self, book: CauseBook, time: Explaining) -> None:
        self._book, self._time = book, time
        self._had: set[Key] = set()

    def next(self, subjects: Iterable[str]) -> Reconsider | None:
        """The first explained finding of which little was said; None where there is none, or no time for it."""
        known = (record for subject in subjects for record in self._book.known(subject))
        record = next((each for each in known if each.key not in self._had and _is_open(each)), None)
        limit = 0.0 if record is None else self._time.spare(_MOST, _LEAST)
        return None if record is None or limit == 0 else Reconsider(record, limit)

    def began(self, key: Key) -> None:
        """A finding is looked at again, and will not be a third time."""
        self._had.add(key)


def _is_open(record: FindingRecord) -> bool:
    told = about_values(record.key)
    return (
        told and (bool(record.confirmation.failed) or not record.confirmation.repeats) and says_little(record.diagnosis)
    )

"""Findings of whose subject a change is looked for that makes it right, in time that nothing else needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import about_values, says_little
from flashverify.campaign.protocol import Mend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.supervisor.budget import Explaining
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Mending"]

_LEAST, _MOST = 8.0, 30.0
"""Seconds for the repairs of one finding."""


class Mending:
    """Which finding is mended next.

    Args:
        book: of the causes.
        time: that explaining may take.
        device: of the campaign; nothing is mended where kernels are compiled.
    """

    def __init__(self, book: CauseBook, time: Explaining, *, device: str) -> None:
        self._book, self._time, self._device = book, time, device
        self._had: set[Key] = set()

    def next(self, subjects: Iterable[str]) -> Mend | None:
        """The first verified finding about values, those of which little was said before others; None where there is none, or no time for it."""
        if self._device != "cpu":
            return None
        known = (record for subject in subjects for record in self._book.known(subject))
        open_ = [each for each in known if each.key not in self._had and _is_open(each)]
        record = min(open_, key=lambda each: not says_little(each.diagnosis), default=None)
        limit = 0.0 if record is None else self._time.spare(_MOST, _LEAST)
        return None if record is None or limit == 0 else Mend(record, limit)

    def began(self, key: Key) -> None:
        """A finding is mended, and will not be again."""
        self._had.add(key)


def _is_open(record: FindingRecord) -> bool:
    told = about_values(record.key)
    mended = record.diagnosis is not None and bool(record.diagnosis.repairs)
    return told and not mended and (bool(record.confirmation.failed) or not record.confirmation.repeats)

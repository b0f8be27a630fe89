"""Which finding is minimised next: checks take turns, those that compare with exact values together."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flashverify.campaign.causes.symptoms import VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Turns"]


class Turns:
    """How often each check had a turn."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def took(self, key: Key) -> None:
        """A finding had its turn."""
        self._taken[_group(key)] += 1

    def first(self, waiting: Sequence[FindingRecord]) -> FindingRecord:
        """The next of findings that are sorted by how clear they are."""
        return min(waiting, key=lambda record: self._taken[_group(record.key)])


def _group(key: Key) -> str:
    return VALUES[0] if key.check in VALUES else key.check

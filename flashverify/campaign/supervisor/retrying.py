"""Findings that are judged once more with the repair of another one: what that makes right has its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import MADE_RIGHT, is_mended
from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.campaign.protocol import Retry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from flashverify.campaign.protocol import Retried
    from flashverify.campaign.supervisor.folding import Folding
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Retrying"]

_MOST = 20.0
"""Seconds for one repair."""
_AT_ONCE = 6
"""Findings that are judged with it together."""


class Retrying:
    """Hands out each pair of a repair and a finding once.

    Args:
        records: the findings by key.
        folding: folds two findings that are one.
    """

    def __init__(self, records: Mapping[Key, FindingRecord], folding: Folding) -> None:
        self._records, self._folding = records, folding
        self._asked: set[tuple[Key, Key]] = set()

    def next(self, subjects: Collection[str], limit: float | None) -> Retry | None:
        """Asks about findings that were not asked before; None where there is none."""
        for cause in self._records.values():
            if cause.key.subject in subjects and is_mended(cause):
                found = tuple(each for each in self._others(cause) if (cause.key, each.key) not in self._asked)
                if found:
                    return Retry(cause, found[:_AT_ONCE], _MOST if limit is None else min(_MOST, limit))
        return None

    def _others(self, cause: FindingRecord) -> Iterator[FindingRecord]:
        for each in self._records.values():
            if each.key != cause.key and each.key.subject == cause.key.subject and each.key.check not in PROCESS_CHECKS:
                yield each

    def began(self, task: Retry) -> None:
        """One begins, and will not again."""
        self._asked |= {(task.cause.key, each.key) for each in task.found}

    def ended(self, event: Retried) -> None:
        """A worker judged them."""
        for key in event.found:
            self._folding.one(key, event.cause, MADE_RIGHT)

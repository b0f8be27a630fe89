"""Second causes that hide behind buckets of causes that are known."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.clearness import clearness
from flashverify.campaign.causes.diagnoses import named
from flashverify.campaign.causes.independence import is_silent
from flashverify.campaign.causes.known import KnownCauses
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, symptom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.campaign.causes.company import Company
    from flashverify.campaign.causes.reservoir import Reservoir
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["HiddenCauses", "bucket_of"]

_ASKED = 32
"""Failures that one task asks about."""
_FURTHER = 32
"""Other cases of buckets with a cause that a cause is asked about."""
_SILENT, _AT_ONCE = 8, 2
"""Cases of these on which a cause with a name cannot be seen that it is asked about before other cases are run again, and by one task."""
_OPENED = 4
"""Second causes that are looked for behind the buckets of one subject."""


def bucket_of(key: Key) -> Key:
    """The bucket that failures fall into before anybody knows their cause."""
    return msgspec.structs.replace(key, cause=0)


class HiddenCauses(KnownCauses):
    """Known causes, and further cases of their buckets, which may show others.

    Args:
        records: the findings, as the tally keeps them.
        owners: by bucket the cause that it was folded into, as the tally keeps them.
        seen: the cases of every bucket.
        company: what failed together.
    """

    def __init__(
        self, records: dict[Key, FindingRecord], owners: dict[Key, Key], seen: Reservoir, company: Company
    ) -> None:
        super().__init__(records, owners, company)
        self._seen = seen
        self._opened: dict[Key, Sighting] = {}  # what leads a second cause of a bucket
        self._asked: set[tuple[Key, Key, str]] = set()
        self._denied: set[tuple[Key, Key, str]] = set()
        self._settled: set[tuple[Key, str]] = set()
        self._further: Counter[Key] = Counter()

    def sighting(self, key: Key) -> Sighting | None:
        """The case that a finding is known by; None of one that an older run left."""
        return self._opened[key] if key in self._opened else self._seen.leading(key)

    def further_question(
        self, subject: str, *, silent: bool = False
    ) -> tuple[FindingRecord, tuple[Sighting, ...]] | None:
        """A cause, and other cases of buckets that have one, behind which a second cause may hide; None where all were asked.

        Args:
            subject: its name.
            silent: only cases on which a cause with a name is not seen and its work hardly can be.
        """
        return self._first(subject, partial(self._others, silent=silent))

    def _first(
        self, subject: str, asked: Callable[[FindingRecord], Iterable[Sighting]]
    ) -> tuple[FindingRecord, tuple[Sighting, ...]] | None:
        found = ((cause, tuple(islice(asked(cause), _ASKED))) for cause in self.known(subject))
        return next((each for each in found if each[1]), None)

    def _others(self, cause: FindingRecord, *, silent: bool) -> Iterator[Sighting]:
        """Those that do not show the cause first, then those on which other things fail than on the first case of their bucket.

        Without a name nothing tells apart what falls into the cause's own bucket.
        """
        mine = symptom(cause.key)
        found = []
        for sighting in self._seen.beside(self._owners):
            key, case = sighting.key, sighting.case
            owner = self._owner(key)
            asked = (cause.key, key, case) in self._asked or (key, case) in self._settled
            if owner is None or asked or key.subject != cause.key.subject:
                continue
            if owner != cause.key and (owner, key, case) not in self._asked:
                continue
            if silent and not is_silent(self._records[owner], sighting):
                continue
            shown, usual = mine in map(symptom, sighting.failures), not self._seen.unusual(sighting)
            told = named(cause) and key.check in TOLD_BY_VALUES
            if silent or (symptom(key) != mine and not usual) or (symptom(key) == mine and told):
                found.append((shown, usual, clearness(key, case), sighting))
        room = min(_AT_ONCE, _SILENT - self._further[cause.key]) if silent else _FURTHER - self._further[cause.key]
        return (sighting for *_, sighting in sorted(found, key=lambda each: each[:3])[: max(0, room)])

    def _owner(self, key: Key) -> Key | None:
        """The known cause that a bucket leads or was folded into."""
        owner = self._owners.get(key, key)
        return owner if owner in self._known else None

    def unexplained(self, subject: str, *, silent: bool = False) -> tuple[Key, Sighting] | None:
        """A further case that no known cause accounts for, as each of them said, and the key of the cause that it opens.

        Args:
            subject: its name.
            silent: only one on which the cause of its bucket is not seen and its work hardly can be.
        """
        causes = self.known(subject)
        opened = {key for key in (*self._records, *self._owners, *self._opened) if key.subject == subject and key.cause}
        led = {record.first for record in self._records.values() if record.key.cause}
        if len(opened) >= _OPENED:
            return None
        for sighting in self._seen.beside(self._owners):
            key, case = sighting.key, sighting.case
            owner = self._owner(key)
            if key.subject != subject or owner is None or (key, case) in self._settled or case in led:
                continue
            if silent and not is_silent(self._records[owner], sighting):
                continue
            if causes and all((cause.key, key, case) in self._denied for cause in causes):
                self._settled.add((key, case))
                second = msgspec.structs.replace(key, cause=self._causes_of(key))
                self._opened[second] = sighting
                return second, sighting
        return None

    def _causes_of(self, bucket: Key) -> int:
        keys = (*self._records, *self._owners, *self._opened)
        return 1 + max((key.cause for key in keys if bucket_of(key) == bucket), default=0)

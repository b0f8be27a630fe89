"""Which cause is known to account for which failure, and what is still to be asked."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.clearness import clearness
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, symptom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flashverify.campaign.causes.reservoir import Reservoir
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["CauseBook", "bucket_of"]

_ASKED = 32
"""Failures that one task asks about."""
_FURTHER = 32
"""Other cases of buckets with a cause that a cause is asked about."""
_CAUSES = 3
"""Causes of one bucket that are told apart."""


def bucket_of(key: Key) -> Key:
    """The bucket that failures fall into before anybody knows their cause."""
    return msgspec.structs.replace(key, cause=0)


class CauseBook:
    """The findings of a campaign as causes: known ones, which were explained, and buckets that wait.

    Args:
        records: the findings, as the tally keeps them.
        owners: by bucket the cause that it was folded into, as the tally keeps them.
        seen: the cases of every bucket.
    """

    def __init__(self, records: dict[Key, FindingRecord], owners: dict[Key, Key], seen: Reservoir) -> None:
        self._records, self._owners, self._seen = records, owners, seen
        self._known = {key: None for key, record in records.items() if record.confirmation.repeats}
        self._opened: dict[Key, Sighting] = {}  # what leads a second cause of a bucket
        self._asked: set[tuple[Key, Key, str]] = set()
        self._settled: set[tuple[Key, str]] = set()
        self._further: Counter[Key] = Counter()

    def explained(self, key: Key) -> None:
        """A finding was minimised: it is a cause that others are held against."""
        self._known[key] = None

    def forget(self, key: Key) -> None:
        """A finding was folded into another one."""
        self._known.pop(key, None)

    def is_known(self, key: Key) -> bool:
        """Whether a finding was explained."""
        return key in self._known

    def owner_of(self, bucket: Key) -> FindingRecord:
        """The finding that a bucket is, or was folded into."""
        return self._records[self._owners.get(bucket, bucket)]

    def known(self, subject: str) -> list[FindingRecord]:
        """The causes of a subject, by name, that can account for others: they were explained, and their cases fail again."""
        found = [self._records[key] for key in self._known if key.subject == subject]
        return [r for r in found if r.confirmation.failed or not r.confirmation.repeats]

    def waiting(self) -> list[FindingRecord]:
        """The findings that were not explained, the clearest first."""
        found = [record for key, record in self._records.items() if key not in self._known]
        return sorted(found, key=lambda record: clearness(record.key, record.case))

    def question(self, subject: str) -> tuple[FindingRecord, tuple[Sighting, ...]] | None:
        """A cause, and the waiting buckets that it may account for; None where everything was asked."""
        return self._first(subject, self._buckets)

    def further_question(self, subject: str) -> tuple[FindingRecord, tuple[Sighting, ...]] | None:
        """A cause, and other cases of buckets that have one, behind which a second cause may hide; None where all were asked."""
        return self._first(subject, self._others)

    def _first(
        self, subject: str, asked: Callable[[FindingRecord], Iterable[Sighting]]
    ) -> tuple[FindingRecord, tuple[Sighting, ...]] | None:
        found = ((cause, tuple(islice(asked(cause), _ASKED))) for cause in self.known(subject))
        return next((each for each in found if each[1]), None)

    def _buckets(self, cause: FindingRecord) -> Iterator[Sighting]:
        for record in self.waiting():
            if record.key.subject == cause.key.subject:
                sighting = self.sighting(record.key)
                if sighting is not None and (cause.key, record.key, sighting.case) not in self._asked:
                    yield msgspec.structs.replace(sighting, key=record.key)

    def _others(self, cause: FindingRecord) -> Iterator[Sighting]:
        """Those that do not show the cause first, then those on which other things fail than on the first case of their bucket.

        Without a name nothing tells apart what falls into the cause's own bucket.
        """
        mine = symptom(cause.key)
        found = []
        for sighting in self._seen.others():
            key, case = sighting.key, sighting.case
            owner = self._owner(key)
            if owner is None or (cause.key, key, case) in self._asked or (key, case) in self._settled:
                continue
            if owner != cause.key and (owner, key, case) not in self._asked:
                continue
            shown, usual = mine in map(symptom, sighting.failures), not self._seen.unusual(sighting)
            told = _named(cause) and key.check in TOLD_BY_VALUES
            if (symptom(key) != mine and not usual) or (symptom(key) == mine and told):
                found.append((shown, usual, clearness(key, case), sighting))
        room = _FURTHER - self._further[cause.key]
        return (sighting for *_, sighting in sorted(found, key=lambda each: each[:3])[: max(0, room)])

    def _owner(self, key: Key) -> Key | None:
        """The known cause that a bucket leads or was folded into."""
        owner = self._owners.get(key, key)
        return owner if owner in self._known else None

    def sighting(self, key: Key) -> Sighting | None:
        """The case that a finding is known by; None of one that an older run left."""
        return self._opened[key] if key in self._opened else self._seen.leading(key)

    def answer(self, cause: Key, sighting: Sighting, why: str) -> None:
        """Whether a cause accounts for a failure: `why` in words, empty where it does not."""
        self._asked.add((cause, sighting.key, sighting.case))
        self._further[cause] += self.is_known(self._owners.get(sighting.key, sighting.key))
        if why:
            self._settled.add((sighting.key, sighting.case))

    def unexplained(self, subject: str) -> tuple[Key, Sighting] | None:
        """A further case that every known cause was asked about and none accounts for, and the key of the cause that it opens."""
        causes = self.known(subject)
        for sighting in self._seen.others():
            key, case = sighting.key, sighting.case
            owner = self._owner(key)
            if key.subject != subject or owner is None or (key, case) in self._settled:
                continue
            if causes and all((cause.key, key, case) in self._asked for cause in causes):
                taken = {k.cause for k in (*self._records, *self._owners) if bucket_of(k) == key} | {0}
                if len(taken) >= _CAUSES:
                    continue
                opened = msgspec.structs.replace(key, cause=max(taken) + 1)
                self._settled.add((key, case))
                self._opened[opened] = sighting
                return opened, sighting
        return None


def _named(cause: FindingRecord) -> bool:
    return cause.diagnosis is not None and bool(cause.diagnosis.name)

"""What the minimal cases of findings show beside them, and which of it is their work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import named
from flashverify.campaign.causes.sighting import may_follow
from flashverify.campaign.causes.symptoms import VALUES
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.protocol import Shown
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["ShownBeside"]

_NEVER_ALONE = "its minimal case shows that too, and it was never seen alone"


class ShownBeside:
    """By bucket the cause whose minimal case shows it.

    A case that could not be made minimal may show a second cause. What it shows beside its finding is parked as long as it was never
    seen alone, and is folded where chance hardly explains that, or at the end.

    Args:
        book: of the causes.
        owners: by bucket the cause that it was folded into, as the tally keeps them.
    """

    def __init__(self, book: CauseBook, owners: dict[Key, Key]) -> None:
        self._book, self._owners = book, owners
        self._shown: dict[Key, Shown] = {}
        self._unsure: dict[Key, Shown] = {}
        self._own: dict[Key, Key] = {}

    def add(self, event: Shown) -> None:
        """A worker saw buckets beside a finding. What was said of a bucket first stays, unless it may only follow there."""
        kept = self._shown if event.sure else self._unsure
        self._book.shown_by(event.cause, event.buckets)
        for bucket in event.buckets:
            if bucket not in kept or (kept[bucket].follows and not event.follows):
                kept[bucket] = event

    def minimal(self, found: FindingRecord, buckets: Iterable[Key]) -> None:
        """A finding was minimised, and its minimal case shows these buckets: its work, if nobody has time to look closer.

        A name has to account for gradients by itself.
        """
        if found.not_minimal or not found.confirmation.failed or found.key.check not in VALUES:
            return
        for bucket in buckets:
            same = bucket.output in FORWARD and found.key.output in FORWARD
            if bucket.check in VALUES and (same or not named(found)):
                self._own.setdefault(bucket, found.key)

    def folds(self, *, over: bool = False) -> Iterator[tuple[Key, Key, str]]:
        """Buckets that wait, each with its cause, and that in words; what is left of them may be parked.

        Args:
            over: nothing more will be asked.
        """
        for bucket, shown in list(self._shown.items()):
            if self._speaks(bucket, shown) and self._may_go(bucket, owner := self._owner(shown.cause)):
                yield bucket, owner, shown.why
        for bucket, cause in self._own.items() if over else ():
            if self._book.waits(bucket) and self._may_go(bucket, owner := self._owner(cause)):
                yield bucket, owner, "its minimal case shows it too"
        parked = set()
        for bucket, shown in list(self._unsure.items()):
            if not self._speaks(bucket, shown) or not self._may_go(bucket, owner := self._owner(shown.cause)):
                continue
            never, hardly = self._book.never_alone(bucket, owner)
            if hardly or (over and never):
                yield bucket, owner, shown.why
            elif never:
                parked.add(bucket)
        self._book.parked = frozenset(parked)

    def same(self) -> Iterator[tuple[Key, Key, str]]:
        """Explained findings, each with another one that is the same cause, and that in words: the minimal case of one of them shows the other."""
        for bucket, shown in (self._unsure | self._shown).items():
            owner = self._owner(shown.cause)
            if (lead := self._book.lead(bucket, owner)) is not None:
                yield (owner, bucket, _NEVER_ALONE) if lead == bucket else (bucket, owner, shown.why)

    def _speaks(self, bucket: Key, shown: Shown) -> bool:
        """Whether a bucket waits, and is not known by a case on which it is wrong in its own right where it only followed there."""
        sighting = self._book.sighting(bucket)
        own = sighting is not None and not may_follow(sighting)
        return self._book.waits(bucket) and not (shown.follows and own)

    def _may_go(self, bucket: Key, owner: Key) -> bool:
        return owner != bucket and not self._book.apart(bucket, owner)

    def _owner(self, cause: Key) -> Key:
        return self._owners.get(cause, cause)

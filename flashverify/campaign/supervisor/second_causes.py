"""Second causes that hide behind a bucket: each is doubted until it is shown to have a cause of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import agreed, alike
from flashverify.campaign.supervisor.tally import first_record

if TYPE_CHECKING:
    from collections.abc import Collection

    from flashverify.campaign.causes.book import CauseBook
    from flashverify.campaign.protocol import Minimal
    from flashverify.campaign.supervisor.ledger import Ledger
    from flashverify.judge.record import Diagnosis, FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["SecondCauses"]


class SecondCauses:
    """What is doubted, and whether it stands.

    Args:
        book: of the causes.
        ledger: of the campaign.
        verified: whether findings are verified in fresh processes.

    Attributes:
        doubted: no findings yet, by the key that they would have.
    """

    def __init__(self, book: CauseBook, ledger: Ledger, *, verified: bool) -> None:
        self._book, self._ledger, self._verified = book, ledger, verified
        self.doubted: dict[Key, FindingRecord] = {}
        self._soon: set[Key] = set()

    def open(self, subject: str, seconds: float) -> None:
        """A further case of a bucket that no known cause accounts for may be a second one.

        As long as buckets wait, one of them may be its cause, unless the cause of the bucket is not seen on the case and hardly can be.
        """
        waits = any(record.key.subject == subject for record in self._book.waiting())
        if (found := self._book.unexplained(subject, silent=waits)) is not None:
            key, sighting = found
            like = self._book.owner_of(sighting.key)
            self._soon |= {key} if waits else set()
            self.doubted[key] = first_record(key, sighting, like.evidence, like.subject_spec, seconds)

    def waiting(self, subjects: Collection[str], others: list[FindingRecord]) -> list[FindingRecord]:
        """Those that are minimised beside `others` that wait, before these or, where nothing but time speaks for them, after these."""
        found = [record for key, record in self.doubted.items() if key.subject in subjects]
        soon = [record for record in found if record.key in self._soon]
        return [*soon, *others] if others else found

    def stand(self, doubted: FindingRecord, event: Minimal) -> FindingRecord | None:
        """A second cause that was minimised, as a finding if it is one: its case fails again, and no known cause has its diagnosis."""
        passed = event.confirmation.repeats or event.key not in self._soon
        unsure = self._verified and not event.confirmation.failed and passed
        if unsure or self.same_diagnosis(event.key, event.diagnosis) is not None:
            return None
        return self._found(doubted)

    def end(self) -> list[FindingRecord]:
        """Those on which the cause of their bucket is not seen and hardly can be, and that there was no time for: each is a finding."""
        late = [self.doubted.pop(key) for key in sorted(self._soon & self.doubted.keys())]
        return [self._found(doubted) for doubted in late]

    def _found(self, doubted: FindingRecord) -> FindingRecord:
        sighting = self._book.sighting(doubted.key)
        assert sighting is not None
        return self._ledger.found(doubted.key, sighting, self._book.owner_of(sighting.key), doubted.seconds)

    def same_diagnosis(self, key: Key, found: Diagnosis | None) -> FindingRecord | None:
        """The cause that has the same diagnosis, though it did not account for the case as it was first seen; it takes the one that says more."""
        same = alike(key, found, self._book.known(key.subject))
        if same is None or same.diagnosis is None or found is None:
            return None
        return self._ledger.renamed(same.key, agreed(same.diagnosis, found))

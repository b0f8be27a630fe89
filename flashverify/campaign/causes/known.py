"""Which findings were explained, so that others are held against them, and which wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.clearness import clearest_first
from flashverify.campaign.causes.companions import Companions
from flashverify.campaign.causes.symptoms import symptom

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from flashverify.campaign.causes.company import Company
    from flashverify.campaign.causes.symptoms import Symptom
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["KnownCauses"]


class KnownCauses:
    """The findings of a campaign: known causes, which were explained, and buckets that wait.

    Args:
        records: the findings, as the tally keeps them.
        owners: by bucket the cause that it was folded into, as the tally keeps them.
        company: what failed together.

    Attributes:
        parked: buckets that are neither asked about nor minimised; they go to a cause at the end if nothing speaks against it by then.
    """

    def __init__(self, records: dict[Key, FindingRecord], owners: dict[Key, Key], company: Company) -> None:
        self._records, self._owners, self._companions = records, owners, Companions(company)
        self._known = {key: None for key, record in records.items() if record.confirmation.repeats}
        self.parked: frozenset[Key] = frozenset()
        self._shows: dict[Key, frozenset[Symptom]] = {}

    def explained(self, key: Key, shows: Iterable[Key] = ()) -> None:
        """A finding was minimised: it is a cause that others are held against, and its minimal case shows these buckets."""
        self._known[key] = None
        self.shown_by(key, tuple(shows))

    def shown_by(self, key: Key, buckets: Collection[Key]) -> None:
        """The minimal case of a finding shows these buckets too, in other dtypes, with a backward or with plain values."""
        self._companions.minimal(key, buckets)
        self._shows[key] = self._shows.get(key, frozenset()) | frozenset(map(symptom, buckets))

    def forget(self, key: Key) -> None:
        """A finding was folded into another one."""
        self._known.pop(key, None)

    def is_known(self, key: Key) -> bool:
        """Whether a finding was explained."""
        return key in self._known

    def waits(self, bucket: Key) -> bool:
        """Whether a bucket is a finding that was not explained, parked or not."""
        return bucket in self._records and bucket not in self._known

    def owner_of(self, bucket: Key) -> FindingRecord:
        """The finding that a bucket is, or was folded into."""
        return self._records[self._owners.get(bucket, bucket)]

    def known(self, subject: str) -> list[FindingRecord]:
        """The causes of a subject, by name, that can account for others: they were explained, and their cases fail again."""
        found = [self._records[key] for key in self._known if key.subject == subject]
        return [r for r in found if r.confirmation.failed or not r.confirmation.repeats]

    def waiting(self) -> list[FindingRecord]:
        """The findings that were not explained and are not parked, the clearest first."""
        out = self._known.keys() | self.parked
        return clearest_first(record for key, record in self._records.items() if key not in out)

    def never_alone(self, bucket: Key, cause: Key) -> tuple[bool, bool]:
        """Whether a bucket was never seen without a cause that could have been seen there, and whether chance hardly explains that."""
        return self._companions.never_alone(bucket, self._records[cause])

    def _leads(self, over: bool) -> tuple[list[FindingRecord], list[FindingRecord]]:
        """Findings that others may go to for company, and those that may go to others, the clearest first.

        Args:
            over: nothing more will be asked. Then a finding that failed in no fresh process leads last, as do those that wait. One that
                was not tried there goes to others if its case is not minimal.
        """
        known = [self._records[key] for key in self._known]
        leads = [record for record in known if record.confirmation.failed or not (over or record.confirmation.repeats)]
        if not over:
            return leads, self.waiting()
        untried = [record for record in known if not record.confirmation.repeats]
        leads += [record for record in untried if not record.not_minimal]
        passed = [record for record in known if record.confirmation.repeats and not record.confirmation.failed]
        waiting = passed + clearest_first([*self.waiting(), *(record for record in untried if record.not_minimal)])
        return [*leads, *waiting], waiting

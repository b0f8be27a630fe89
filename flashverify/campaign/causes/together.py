"""What was seen and tried of findings that fail together, or alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import named, one_name, says_apart
from flashverify.campaign.causes.needs import small
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, Symptom, symptom
from flashverify.case.text import parse_case
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.campaign.causes.company import Company
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["HARDLY", "Together"]

HARDLY = 0.01
"""Probability by chance at which company is hardly explained by that."""
_ALONE = 4
"""Cases on which a bucket was seen alone that are run again."""
_LINKED = 1e-4
"""Probability by chance at which it is enough that a failure is seen with a cause on half of its cases."""


class Together:
    """What is known of two findings: cases on which they were seen, and what was tried of them.

    Args:
        company: what failed together.

    Attributes:
        kept: buckets that were folded for their company alone: that one is seen says nothing about others.
    """

    def __init__(self, company: Company) -> None:
        self._company = company
        self.kept: set[Key] = set()
        self._at_work: dict[tuple[Key, Key], bool] = {}
        self._shows: dict[Key, frozenset[Symptom]] = {}
        self._compared: set[tuple[Key, Key]] = set()
        self._left_wrong: set[frozenset[Key]] = set()

    def tried(self, cause: Key, bucket: Key, at_work: bool) -> None:
        """Whether a cause shows with other values on every case on which a bucket was seen alone."""
        self._at_work[cause, bucket] = at_work

    def compared(self, cause: Key, found: Key) -> None:
        """A cause shows with other values on the minimal case of an explained finding, and on every one on which that was seen alone."""
        self._compared.add((cause, found))
        self._at_work[cause, found] = True

    def minimal(self, key: Key, shows: Iterable[Key]) -> None:
        """What the minimal case of a finding shows, as it is or with a backward, in another dtype, with plain values."""
        self._shows[key] = self._shows.get(key, frozenset()) | frozenset(map(symptom, shows))

    def left_wrong(self, found: Key, lead: Key) -> None:
        """The case of `found` is as wrong with the repair of `lead` as without it."""
        self._left_wrong.add(frozenset({found, lead}))

    def is_left_wrong(self, found: Key, lead: Key) -> bool:
        """Whether the case of `found` was as wrong with the repair of `lead`, or the reverse."""
        return frozenset({found, lead}) in self._left_wrong

    def apart(self, found: FindingRecord, lead: FindingRecord) -> bool:
        """Whether the diagnosis of one of two findings says that the other one is no work of its cause, or its repair leaves that wrong.

        One name of both says more than a repair.
        """
        if self.is_left_wrong(found.key, lead.key) and not (named(found) and one_name(found, lead)):
            return True
        pairs = ((found, lead), (lead, found))
        return any(self._company.errors.beyond(a, b) or says_apart(b, a.key) for a, b in pairs)

    def alone(self, bucket: Key, cause: FindingRecord) -> tuple[str, ...]:
        """A few cases on which a bucket was seen without a cause, where nobody tried yet whether that shows there with other values."""
        told = named(cause) and bucket.check in TOLD_BY_VALUES
        return () if told or (cause.key, bucket) in self._at_work else self.few_alone(bucket, cause)

    def few_alone(self, bucket: Key, cause: FindingRecord) -> tuple[str, ...]:
        """A few cases on which a bucket was seen without a cause that could have been seen there."""
        return tuple(self._company.alone(bucket, self._symptoms_of(cause))[:_ALONE])

    def crossed(self, a: FindingRecord, b: FindingRecord) -> bool:
        """Whether each of two findings was seen on a case that could have shown the other one and did not, with other values neither."""
        pairs = [(one, two) for one, two in ((a, b), (b, a)) if not self._at_work.get((two.key, one.key))]
        alone = (self._company.alone(one.key, self._symptoms_of(two) - {symptom(one.key)}) for one, two in pairs)
        return len(pairs) == 2 and all(alone)

    def never_alone(self, bucket: Key, cause: FindingRecord) -> tuple[bool, bool]:
        """Whether a bucket was never seen without an explained finding, and whether chance hardly explains that."""
        together, chance = self._met(bucket, cause, explained=True)
        return together > 0, together > 0 and chance <= HARDLY

    def _met(self, bucket: Key, cause: FindingRecord, *, explained: bool) -> tuple[int, float]:
        minimal = parse_case(cause.case) if explained and not cause.not_minimal else None
        symptoms = self._symptoms_of(cause)
        at_work = self._company.alone(bucket, symptoms) if self._at_work.get((cause.key, bucket)) else ()
        return self._company.met(bucket, symptoms, minimal, at_work)

    def _linked(self, found: FindingRecord, cause: FindingRecord, *, explained: bool) -> str:
        """Whether a failure is seen with a cause far more often than chance explains, though not always, in words.

        Small errors of two outputs come of the same values, whatever their causes are.
        """
        if small(found.verdict) and small(cause.verdict):
            return ""
        minimal = parse_case(cause.case) if explained and not cause.not_minimal else None
        together, several, chance = self._company.linked(found.key, self._symptoms_of(cause), minimal)
        if chance > _LINKED or 2 * together < several:
            return ""
        return f"seen with it on {together} of {plural(several, 'case')}, which chance does not explain"

    def _alone_elsewhere(self, found: FindingRecord, lead: FindingRecord) -> bool:
        """Whether the same output in another dtype, which a bucket holds, was seen without a finding that could have been seen there."""
        held = (each.key for each in found.folded if symptom(each.key) == symptom(found.key))
        shown = self._symptoms_of(lead)
        return any(self._company.alone(key, shown) and not self._at_work.get((lead.key, key)) for key in held)

    def _symptoms_of(self, cause: FindingRecord) -> frozenset[Symptom]:
        """What a finding shows: of those that were folded into it those that more than company speaks for."""
        folded = (each.key for each in cause.folded if each.key not in self.kept)
        return frozenset(map(symptom, (cause.key, *folded)))

"""Which cause is known to account for which failure, and what is still to be asked."""

from __future__ import annotations

from functools import partial
from itertools import chain, combinations, product
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.diagnoses import named
from flashverify.campaign.causes.hidden import HiddenCauses
from flashverify.campaign.causes.overflows import overflows
from flashverify.campaign.causes.pairs import Pairs
from flashverify.campaign.causes.remaining import Remaining

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

    from flashverify.campaign.causes.company import Company
    from flashverify.campaign.causes.reservoir import Reservoir
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["CauseBook"]


class CauseBook(HiddenCauses):
    """Known causes, what was asked of them, and what still is.

    Args:
        records: the findings, as the tally keeps them.
        owners: by bucket the cause that it was folded into, as the tally keeps them.
        seen: the cases of every bucket.
        company: what failed together.

    Attributes:
        pairs: of explained findings, which are compared.
        remaining: findings that nothing tells apart.
    """

    def __init__(
        self, records: dict[Key, FindingRecord], owners: dict[Key, Key], seen: Reservoir, company: Company
    ) -> None:
        super().__init__(records, owners, seen, company)
        self._looked: set[tuple[Key, Key, str]] = set()
        self.pairs = Pairs(self._companions, self.sighting)
        self.remaining = Remaining(records, company, self._companions, self.known, self._denials)

    def question(
        self, subject: str, *, trials: bool, names: bool = False
    ) -> tuple[FindingRecord, tuple[Sighting, ...]] | None:
        """A cause, and the waiting buckets that it may account for; None where everything was asked.

        Args:
            subject: its name.
            trials: whether cases are to be run again in other ways; what takes one run at most is asked before that.
            names: only causes with a name.
        """
        asked = self._asked if trials else self._asked | self._looked
        return self._first(subject, partial(self._buckets, asked=asked, trials=trials, names=names))

    def looked(self, cause: Key, sightings: Iterable[Sighting]) -> None:
        """What takes one run at most was asked."""
        self._looked |= {(cause, sighting.key, sighting.case) for sighting in sightings}

    def pair(self, subject: str) -> tuple[FindingRecord, Sighting] | None:
        """Two explained findings that were not compared: the clearer one, and a case of the other one; None where all were."""
        return self.pairs.next(self.known(subject))

    def compared(self, cause: Key, found: Key) -> None:
        """A cause is at work where an explained finding was seen."""
        self._companions.compared(cause, found)

    def _buckets(
        self, cause: FindingRecord, *, asked: Set[tuple[Key, Key, str]], trials: bool, names: bool
    ) -> Iterator[Sighting]:
        if names and not named(cause):
            return
        for record in self.waiting():
            sighting = self.sighting(record.key)
            if sighting is None or record.key.subject != cause.key.subject:
                continue
            if self._companions.is_left_wrong(record.key, cause.key):
                continue
            alone = self._companions.alone(record.key, cause) if trials else ()
            if alone or (cause.key, record.key, sighting.case) not in asked:
                yield msgspec.structs.replace(sighting, key=record.key, alone=alone)

    def companions(self, *, over: bool = False) -> Iterator[tuple[Key, Key, str]]:
        """Findings that wait, each with the cause in whose company alone it was seen, and that in words. The least clear comes first.

        Args:
            over: nothing more will be asked. Then it is enough that nothing tells a finding apart from a cause, or from a clearer finding
                that waits as well.
        """
        leads, waiting = self._leads(over)
        for record in reversed([record for record in waiting if not record.key.cause]):
            for lead in leads:
                if lead.key == record.key:
                    break  # what follows is less clear than the finding itself
                if lead.key.subject == record.key.subject and (why := self._company_of(record.key, lead.key, over)):
                    self._companions.kept.add(record.key)
                    yield record.key, lead.key, why
                    break

    def needed(self, *, over: bool = False) -> Iterator[tuple[Key, Key, str]]:
        """Explained findings, each with an earlier one without which it does not show, and that in words."""
        yield from iter(lambda: self._needed(over), None)

    def beside(self, found: FindingRecord) -> tuple[Key, ...]:
        """Buckets of the findings that may be one with `found`, which is not explained yet, if its minimal case shows them too."""
        known = () if found.key.cause else self.known(found.key.subject)
        leads = (lead for lead in known if not lead.key.cause and self._companions.beside(found, lead))
        return tuple(key for lead in leads for key in (lead.key, *(each.key for each in lead.folded)))

    def _needed(self, over: bool) -> tuple[Key, Key, str] | None:
        known = [self._records[key] for key in self._known if not key.cause]
        every = [self._records[key] for key in self._known]
        leads = known + [record for record in self.waiting() if over and not record.key.cause]
        asked = chain(
            (
                (a.key, b.key, overflows(a, b, self._shows.get(a.key, ())))
                for a, b in product(every, known)
                if self._two(a, b)
            ),
            ((a.key, b.key, self._companions.overwrites(a, b)) for a, b in product(leads, leads) if self._two(a, b)),
            (
                (a.key, b.key, self._companions.repeats(a, b, over=over))
                for a, b in product(known, known)
                if self._two(a, b)
            ),
            (
                (b.key, a.key, self._companions.needed(b, a, over=over))
                for a, b in combinations(known, 2)
                if self._two(a, b)
            ),
            ((a.key, b.key, self._companions.never_without(a, b)) for a, b in product(known, known) if self._two(a, b)),
        )
        return next((each for each in asked if each[2]), None)

    def apart(self, found: Key, cause: Key) -> bool:
        """Whether the diagnosis or the repair of one of two findings says that the other one is no work of its cause."""
        return self._companions.apart(self._records[found], self._records[cause])

    def left_wrong(self, found: Key, cause: Key) -> None:
        """The case of a finding is as wrong with the repair of another one as without it."""
        self._companions.left_wrong(found, cause)

    def of_its_own(self, found: FindingRecord) -> bool:
        """Whether a finding that waits has a cause of its own: the repair of every known one leaves it wrong."""
        known = self.known(found.key.subject)
        return bool(known) and all(self._companions.is_left_wrong(found.key, cause.key) for cause in known)

    def _two(self, a: FindingRecord, b: FindingRecord) -> bool:
        """Whether these are two findings of one subject that may be one."""
        return a.key != b.key and a.key.subject == b.key.subject and not self._companions.apart(a, b)

    def _denials(self) -> set[tuple[Key, Key]]:
        """Pairs of a cause and a bucket that was put to it and for which it does not account."""
        return {(cause, key) for cause, key, _ in self._denied}

    def lead(self, shown: Key, cause: Key) -> Key | None:
        """Of two explained findings that are one, the one that the other one goes to, which has no name; the minimal case of `cause` shows the other.

        They fail in the same way in two dtypes, or one is never seen without the other.
        """
        if not (shown in self._known and cause in self._known) or shown.cause or shown == cause:
            return None
        two = self._records[shown], self._records[cause]
        lead = None if self.apart(shown, cause) else self._companions.lead(*two)
        return None if lead is None or any(named(each) for each in two if each is not lead) else lead.key

    def _company_of(self, found: Key, cause: Key, over: bool) -> str:
        record, lead, sighting = self._records[found], self._records[cause], self.sighting(found)
        question = (lead.key, record.key, sighting.case if sighting else "")
        return self._companions.why(
            record,
            lead,
            explained=self.is_known(lead.key),
            looked=question in self._looked or question in self._asked,
            denied=question in self._denied,
            over=over,
        )

    def answer(
        self, cause: Key, sighting: Sighting, why: str, *, told: bool = True, at_work: bool | None = None
    ) -> None:
        """Whether a cause accounts for a failure: `why` in words, empty where it does not, or where that could not be told."""
        if sighting.alone:
            self._companions.tried(cause, sighting.key, bool(at_work))
        question = (cause, sighting.key, sighting.case)
        self._asked.add(question)
        self._further[cause] += self.is_known(self._owners.get(sighting.key, sighting.key))
        if why:
            self._settled.add((sighting.key, sighting.case))
        elif told:
            self._denied.add(question)

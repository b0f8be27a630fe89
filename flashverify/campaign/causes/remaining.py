"""The findings that are left when nothing more is asked: those that nothing tells apart are one."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from flashverify.campaign.causes.clearness import clearest_first
from flashverify.campaign.causes.diagnoses import named
from flashverify.campaign.causes.hidden import bucket_of
from flashverify.campaign.causes.independence import independent, naming
from flashverify.campaign.causes.separations import Separations
from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES, VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flashverify.campaign.causes.companions import Companions
    from flashverify.campaign.causes.company import Company
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Remaining"]

_TRIED = "nothing shows that it has a cause of its own, experiments neither"
_UNTRIED = "not told apart: no experiment was possible within the time"


class Remaining:
    """Which findings nothing tells apart.

    Args:
        records: the findings; who iterates `folds` folds each at once.
        company: what failed together.
        companions: what that says of findings.
        known: those of a subject that were explained, so that others may go to them.
        denied: pairs of a cause and a bucket that was put to it and for which it does not account.

    Attributes:
        separations: what experiments said of two findings.
    """

    def __init__(
        self,
        records: Mapping[Key, FindingRecord],
        company: Company,
        companions: Companions,
        known: Callable[[str], list[FindingRecord]],
        denied: Callable[[], set[tuple[Key, Key]]],
    ) -> None:
        self._records, self._company, self._companions = records, company, companions
        self._known, self._denied = known, denied
        self.separations = Separations()

    def folds(self) -> Iterator[tuple[Key, Key, str]]:
        """Findings that are left, each with an explained one from which nothing tells it apart, and that in words."""
        for subject in dict.fromkeys(key.subject for key in self._records):
            for found, lead in self._alike(subject, late=True):
                self._companions.kept.add(found.key)
                yield found.key, lead.key, _TRIED if self.separations.tried(found.key, lead.key) else _UNTRIED

    def unasked(self, subject: str) -> tuple[FindingRecord, FindingRecord] | None:
        """A finding with a name, and one about values without any, about which that was not asked; both are explained."""
        known = self._known(subject)
        leads = [record for record in known if naming(record) and record.key.check in TOLD_BY_VALUES]
        found = [record for record in known if not named(record) and record.key.check in VALUES]
        asked = ((a, b) for a, b in product(leads, found) if not self.separations.asked(a.key, b.key))
        return next(asked, None)

    def undecided(self, subject: str, *, explained: bool) -> tuple[FindingRecord, FindingRecord] | None:
        """Two findings that nothing tells apart so far, with which no experiment was begun, the one that would hold the other one first.

        Args:
            subject: its name.
            explained: whether both have to be explained; one of them is in any case.
        """
        known = {record.key for record in self._known(subject)} if explained else self._records
        found = ((lead, found) for found, lead in self._alike(subject) if found.key in known)
        return next((pair for pair in found if not self.separations.begun(pair[0].key, pair[1].key)), None)

    def _alike(self, subject: str, *, late: bool = False) -> Iterator[tuple[FindingRecord, FindingRecord]]:
        """Findings that nothing tells apart, each with one that holds it. A finding with a name leads, then the clearest that was verified.

        Args:
            subject: its name.
            late: nothing is explained any more. Then of those about values that nobody had time to explain one leads the others.
        """
        found = clearest_first(record for record in self._records.values() if record.key.subject == subject)
        leading = {record.key for record in self._known(subject)}
        kept: list[Key] = []
        for record in sorted(found, key=_leading):
            beside = {key for key in kept if late and leading and self._both_untold(record.key, key)}
            leads = (self._records[key] for key in kept if key in leading | beside)
            lead = next((lead for lead in leads if not self._independent(record, lead)), None)
            if lead is None:
                kept.append(record.key)
            else:
                yield record, lead

    def _both_untold(self, found: Key, lead: Key) -> bool:
        """Whether two findings are about wrong values, and nobody had time to explain either."""
        explained = {record.key for record in self._known(lead.subject)}
        return {found.check, lead.check} <= set(VALUES) and not {found, lead} & explained

    def _independent(self, found: FindingRecord, lead: FindingRecord) -> bool:
        """Whether anything shows that a finding has a cause of its own, which is not that of another one."""
        said, a, b = self.separations, found.key, lead.key
        return independent(
            found,
            lead,
            self._company,
            denied=said.denied(a, b) or bool({(a, bucket_of(b)), (b, bucket_of(a))} & self._denied()),
            told=self._companions.apart(found, lead),
            crossed=lambda: not self._both_untold(a, b) and self._companions.crossed(found, lead),
            without=(said.seen_without(a, b), said.seen_without(b, a)),
            kept=self._companions.kept,
        )


def _leading(record: FindingRecord) -> tuple[bool, bool, bool]:
    return (not naming(record), not record.confirmation.failed, bool(record.not_minimal))

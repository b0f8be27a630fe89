"""Which explained findings are still to be compared with which."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.clearness import clearest_first
from flashverify.campaign.causes.diagnoses import told_apart
from flashverify.campaign.causes.symptoms import VALUES
from flashverify.campaign.plan_name import PROCESS_CHECKS
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flashverify.campaign.causes.companions import Companions
    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["Pairs"]


class Pairs:
    """Pairs of explained findings, each compared once.

    Args:
        companions: what company says of them.
        sighting: the case by which a finding is known.
    """

    def __init__(self, companions: Companions, sighting: Callable[[Key], Sighting | None]) -> None:
        self._companions, self._sighting = companions, sighting
        self._asked: set[tuple[Key, Key]] = set()

    def began(self, lead: Key, other: Key) -> None:
        """A pair is compared now."""
        self._asked.add((lead, other))

    def next(self, known: Iterable[FindingRecord]) -> tuple[FindingRecord, Sighting] | None:
        """The clearer finding of a pair, and a case of the other one with those on which that was seen alone; None where none is left."""
        found = clearest_first(record for record in known if not record.key.cause)
        for lead, other in combinations(found, 2):
            sighting = self._sighting(other.key)
            if (lead.key, other.key) in self._asked or sighting is None or _apart(lead, other):
                continue
            alone = (other.case, *self._companions.few_alone(other.key, lead))
            return lead, msgspec.structs.replace(sighting, alone=alone)
        return None


def _apart(lead: FindingRecord, other: FindingRecord) -> bool:
    """Whether a comparison says nothing: names or ends of processes tell the two apart.

    The forward is over before a gradient goes wrong, so that a finding about gradients makes no O wrong.
    """
    checks = {lead.key.check, other.key.check}
    if told_apart(other, lead) or checks & {*PROCESS_CHECKS, "exception", "statistics"}:
        return True
    forward = other.key.check in VALUES and other.key.output in FORWARD
    return forward and lead.key.check in VALUES and lead.key.output in BACKWARD

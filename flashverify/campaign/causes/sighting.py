"""A failure on one case beside everything else that failed there: what is asked about its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.symptoms import VALUES, symptom
from flashverify.case.text import parse_case
from flashverify.judge.verdict import CaseResult, Key, Verdict
from flashverify.outputs import BACKWARD, FORWARD

if TYPE_CHECKING:
    from flashverify.campaign.causes.symptoms import Symptom

__all__ = ["Sighting", "may_follow", "shown", "sightings_of"]

_BOTH_WAYS = frozenset({"end-to-end", "conditional"})


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case that fell into a bucket.

    Attributes:
        key: the bucket.
        case: its text.
        verdict: the failing verdict.
        failures: everything that failed on the case, without messages.
        given: outputs that were judged given the kernel's own O and LSE too.
        alone: cases of the bucket on which the cause that is asked about was not seen, though it could have been.
    """

    key: Key
    case: str
    verdict: Verdict
    failures: tuple[Verdict, ...] = ()
    given: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


def shown(sighting: Sighting) -> frozenset[Symptom]:
    """What fails on the case, and on the problem that the check of the bucket compared it with."""
    other = sighting.verdict.other
    return frozenset((*map(symptom, sighting.failures), *(other.failures if other is not None else ())))


def may_follow(sighting: Sighting) -> bool:
    """Whether a gradient may be wrong on the case only because O or the LSE is: it is not wrong both end to end and given these.

    Such a case says nothing of a cause that the gradient may have of its own.
    """
    if sighting.key.check not in VALUES or sighting.key.output not in BACKWARD:
        return False
    found = [verdict for verdict in sighting.failures if verdict.check in VALUES and verdict.mode != "strict"]
    modes = {verdict.mode for verdict in found if verdict.output == sighting.key.output}
    return not modes >= _BOTH_WAYS and any(verdict.output in FORWARD for verdict in found)


def sightings_of(result: CaseResult) -> dict[Key, Sighting]:
    """One for each bucket that a result falls into, by bucket; of several verdicts of a bucket the first counts, beside what failed on its case."""
    given = tuple(sorted({stats.output for stats in result.stats if stats.mode == "conditional"}))
    dtype = parse_case(result.case).dtype
    by_key = {v.key(result.subject, dtype): v for v in reversed(result.failures)}
    found = {}
    for key, verdict in sorted(by_key.items()):
        text = result.case_of(verdict)
        bare = tuple(
            msgspec.structs.replace(v, message="", traceback="", index=(), map=None)
            for v in result.failures
            if result.case_of(v) == text
        )
        found[key] = Sighting(key, text, verdict, bare, given if text == result.case else ())
    return found

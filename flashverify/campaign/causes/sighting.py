"""A failure on one case beside everything else that failed there: what is asked about its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.judge.verdict import CaseResult, Key, Verdict

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["Sighting", "sightings_of"]


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A case that fell into a bucket.

    Attributes:
        key: the bucket.
        case: its text.
        verdict: the failing verdict.
        failures: everything that failed on the case, without messages.
        given: outputs that were judged given the kernel's own O and LSE too.
    """

    key: Key
    case: str
    verdict: Verdict
    failures: tuple[Verdict, ...] = ()
    given: tuple[str, ...] = ()


def sightings_of(result: CaseResult, case: Case) -> dict[Key, Sighting]:
    """One for each bucket that a result falls into, by bucket; of several verdicts of a bucket the first counts."""
    bare = tuple(msgspec.structs.replace(v, message="", traceback="", index=(), map=None) for v in result.failures)
    given = tuple(sorted({stats.output for stats in result.stats if stats.mode == "conditional"}))
    by_key = {v.key(result.subject, case.dtype): v for v in reversed(result.failures)}
    return {key: Sighting(key, result.case, verdict, bare, given) for key, verdict in sorted(by_key.items())}

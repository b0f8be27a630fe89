"""What a minimal case with values that are not finite shows with plain values, and whether that is of the same cause."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from flashverify.campaign.causes.independence import has
from flashverify.campaign.causes.sighting import sightings_of
from flashverify.campaign.causes.symptoms import VALUES
from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.worker.neighbours import simpler
from flashverify.case.case import Values
from flashverify.case.changes import change
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult, Key

__all__ = ["with_plain_values"]

_ACCURACY = str(PlanName.of_check("accuracy"))
_TRIED = 12
"""Cases with a part less that are judged."""


def with_plain_values(
    judge: Callable[[Case, str], CaseResult], accepted: Callable[[Case], bool], minimal: Case, key: Key
) -> tuple[Case, tuple[Sighting, ...]] | None:
    """What fails on a minimal case with values that are not finite, with plain values, where both need the same part.

    A number that is not finite hides how wrong a value is otherwise. Nothing that is not finite is left without any part of a minimal
    case; where the other failure is gone too without one of them, both need that part.

    Args:
        judge: judges a case under a plan.
        accepted: whether the subject accepts a case.
        minimal: the case, of which no part can be taken away.
        key: of the failure.

    Returns:
        The case with plain values, and what fails there of the same output, or of O and the LSE; None where nothing does, or where it is
        not known to need a part of the case.
    """
    plain = change(minimal, values=Values(seed=minimal.values.seed))
    if key.check != "nonfinite" or plain is None or plain == minimal or not accepted(plain):
        return None
    seen = _seen(judge(plain, _ACCURACY), key)
    lesser = filter(accepted, _with_a_part_less(plain))
    if not seen or not any(not _seen(judge(case, _ACCURACY), key) for case in islice(lesser, _TRIED)):
        return None
    return plain, seen


def _seen(result: CaseResult, key: Key) -> tuple[Sighting, ...]:
    outputs = {key.output, *FORWARD}
    found = (each for of, each in sightings_of(result).items() if of.check in VALUES and of.output in outputs)
    return tuple(sorted(found, key=lambda each: each.key.output != key.output))


def _with_a_part_less(case: Case) -> Iterator[Case]:
    """Cases with all sizes of `case` that lack one of its parts."""
    parts = _parts(case)
    return (each for each in simpler(case) if _parts(each) < parts and each.shape_q == case.shape_q)


def _parts(case: Case) -> frozenset[str]:
    return frozenset(part for part in has(case) if part.startswith("has ") and part != "has backward")

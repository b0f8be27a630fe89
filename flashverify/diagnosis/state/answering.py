"""What a later call computes with of an earlier one: one answer of all that is asked about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.reuse import NAMES
from flashverify.diagnosis.attempting import attempted
from flashverify.diagnosis.state.first_things import of_the_first_call
from flashverify.diagnosis.state.following import of_the_call_before
from flashverify.diagnosis.state.for_good import draws_of_the_first_call
from flashverify.diagnosis.state.naming import kept_from_earlier
from flashverify.diagnosis.state.suspecting import kept_from_any
from flashverify.diagnosis.state.telling import told

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.diagnosis.clock import End
    from flashverify.judge.record import Diagnosis
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["of_state"]

_BEFORE = 0.6
"""Share of the time for what a call has of the call before it, where no check says which call that is."""


def of_state(subject: Subject, case: Case, verdict: Verdict, first: Case | None, number: int, end: End) -> Diagnosis:
    """What a later call computes with of an earlier one; in the words of the check where none is found.

    Args:
        subject: the kernel under test.
        case: where it fails.
        verdict: the failing verdict.
        first: another case that fails likewise, or None.
        number: of a call that nothing was asked with before, see `fresh_number`.
        end: when to stop.
    """
    cases = dict.fromkeys((case, first or case))
    asked = verdict.check == "reuse" and verdict.error in NAMES  # else any call may have made it wrong
    middle = end if asked else end.part(_BEFORE)
    kept = kept_from_earlier if asked else kept_from_any
    searches = (
        lambda each: kept(subject, each, verdict.error, number, end),
        lambda each: attempted("asking for the call before", lambda: of_the_call_before(subject, each, middle), None),
        lambda each: attempted("asking for the first call", lambda: _of_the_first(subject, each, end), None),
    )
    for search in searches if asked else reversed(searches):
        for each in cases:
            found = search(each)
            if found is not None:
                return found
    return told(subject, case, verdict)


def _of_the_first(subject: Subject, case: Case, end: End) -> Diagnosis | None:
    return draws_of_the_first_call(subject, case, end) or of_the_first_call(subject, case, end, certain=True)

"""Failures that no wrong semantics is about, in the words of the check that found them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks import Plan, judge_case
from flashverify.checks.registry import CHECKS, error_class
from flashverify.diagnosis.state.overwriting import overwritten
from flashverify.judge.record import Diagnosis
from flashverify.judge.verdict import Status
from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["OF_A_FIRST_CALL", "OF_ONE_CALL", "gone", "told"]

OF_ONE_CALL = ("accuracy", "nonfinite")
"""Checks that judge one call."""
OF_A_FIRST_CALL = (*OF_ONE_CALL, "memory", "sanitizer")
"""Checks whose failures are no work of earlier calls where a fresh process shows them too: they are seen in its first call."""
_BEGIN = {
    "config": "The outputs depend on the launch configuration",
    "reuse": "Which thing of an earlier call is kept was not found",
}


def told(subject: Subject, case: Case, verdict: Verdict) -> Diagnosis:
    """What the check says of the case when it is asked once more: which outputs fail, and how the first of them does."""
    again = _again(subject, case, verdict)
    if verdict.check != "config" and (words := overwritten(subject, case)):
        return Diagnosis(sentence=words, place=_place(again or [verdict]))
    if not again:
        words = "Asked once more, the check does not fail: the failure depends on what was called before, or on chance."
        return Diagnosis(sentence=f"{words} It was: {verdict.message}.", place=_place([verdict]))
    first = next((each for each in again if each.output == verdict.output), again[0])
    known = error_class(first.check, first.error)
    begin = _BEGIN.get(first.check, "" if known is None else known.sentence)
    begin = begin[:1].upper() + begin[1:]
    sentence = f"{begin}: {first.message}." if begin else f"{first.message}."
    if first.check not in (*OF_ONE_CALL, "config"):
        sentence += " By itself the case is right within its bounds."
    return Diagnosis(sentence=sentence, place=_place(again))


def gone(subject: Subject, case: Case, verdict: Verdict) -> bool:
    """Whether a failure about values is not there when the case is asked once more."""
    return verdict.check in OF_ONE_CALL and not _again(subject, case, verdict)


def _again(subject: Subject, case: Case, verdict: Verdict) -> list[Verdict]:
    """The failures of the same check and class."""
    if verdict.check not in CHECKS:
        return [verdict]
    found = judge_case(subject, case, Plan.only(verdict.check, case)).verdicts
    alike = [v for v in found if (v.check, v.error, v.status) == (verdict.check, verdict.error, Status.FAIL)]
    return alike or [v for v in found if v.status is Status.FAIL and v.check == verdict.check]


def _place(found: list[Verdict]) -> str:
    names = sorted({verdict.output for verdict in found if verdict.output in OUTPUTS}, key=OUTPUTS.index)
    if not names:
        return ""
    first = next(verdict for verdict in found if verdict.output == names[0])
    at = f"; the first at {list(first.index)}" if first.index else ""
    return f"{', '.join(names)} {'fails' if len(names) == 1 else 'fail'}{at}"

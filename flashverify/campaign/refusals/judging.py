"""A case outside a subject's declaration, judged as if it were inside."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from flashverify.campaign.refusals.record import Ended
from flashverify.case.supports import Supports

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult

__all__ = ["AsIfDeclared", "judge_outside", "result_outside"]

_LENGTH = 500


class _Accepting(Supports):
    """A declaration that refuses nothing."""

    __slots__ = ()

    def refusal(self, case: Case) -> str | None:  # noqa: ARG002
        """None: the case is put to the subject."""
        return None


class AsIfDeclared:
    """A subject whose declaration refuses nothing. Everything else is the subject's own.

    Args:
        subject: any.
    """

    def __init__(self, subject: Any) -> None:
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    @property
    def supports(self) -> Supports:
        """What the subject declares, without its refusals."""
        declared = self._subject.supports
        return _Accepting(**{field.name: getattr(declared, field.name) for field in dataclasses.fields(Supports)})


def result_outside(subject: Any, case: Case) -> CaseResult:
    """Accuracy of the subject on the case, whatever it declares."""
    from flashverify.checks import Plan, judge_case

    return judge_case(AsIfDeclared(subject), case, Plan(checks=("accuracy", "nonfinite")))


def judge_outside(subject: Any, case: Case) -> Ended:
    """What the subject makes of the case: an exception is a refusal, and outputs must be right."""
    from flashverify.judge.verdict import Status

    result = result_outside(subject, case)
    raised = next((verdict for verdict in result.failures if verdict.check == "exception"), None)
    if raised is not None:
        return Ended("refused", raised.message[:_LENGTH])
    if result.failures:
        return Ended("wrong", result.failures[0].message[:_LENGTH])
    undecided = next((verdict for verdict in result.verdicts if verdict.status is not Status.PASS), None)
    return Ended("right") if undecided is None else Ended("not judged", undecided.message[:_LENGTH])

"""What accuracy says of one pass, for checks that compare passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.accuracy import check_accuracy

if TYPE_CHECKING:
    from flashverify.checks.execution import Execution
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["first_failure"]


def first_failure(subject: Subject, execution: Execution) -> Verdict | None:
    """The first failing verdict of `accuracy` and `nonfinite` about a pass; None where every element is within its bound."""
    return next(iter(check_accuracy(subject, execution).failures()), None)

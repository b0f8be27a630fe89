"""What fails on the other problem of a check that compares two: wrong values, and accesses that the sanitizer complains about.

Such a check is asked of cases that are right. So its failure never stands beside the wrong values of the same defect, unless it says
that the other problem, with the very tensors that the check gave it, is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.checks.accuracy import check_accuracy, shape_failures
from flashverify.checks.passes.base_pass import beyond_oracle
from flashverify.checks.passes.comparing import compares
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import OtherProblem, Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.case.case import Case
    from flashverify.checks.passes.execution import Execution
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["with_counts", "with_other_problem"]

_STRICT = "strict"


def with_other_problem(
    subject: Subject, found: list[Verdict], base: Execution, passes: Iterable[Execution], case: Case | None = None
) -> list[Verdict]:
    """The verdicts of a check, of which the failing ones say what fails on the first other problem that is wrong, and not on the case itself.

    Args:
        subject: the kernel under test.
        found: the verdicts.
        base: the pass over the case.
        passes: over the other problems; the tensors and the case of each say what its right outputs are.
        case: that stands for the other problem; None is its own.
    """
    if not compares() or not any(map(_silent, found)):
        return found
    before = _failures(subject, base)
    for execution in passes:
        if failures := _failures(subject, execution) - before:
            other = OtherProblem(str(case or execution.problem.case), tuple(sorted(failures)))
            return [msgspec.structs.replace(v, other=other) if _silent(v) else v for v in found]
    return found


def with_counts(found: list[Verdict], case: Case) -> list[Verdict]:
    """The same of verdicts about counts: a count that is no right one is read off an output that is outside its bound.

    Args:
        found: the verdicts.
        case: that was counted.
    """
    return [
        msgspec.structs.replace(v, other=OtherProblem(str(case), (("accuracy", "bound", v.output),)))
        if _silent(v)
        else v
        for v in found
    ]


def _silent(verdict: Verdict) -> bool:
    """Whether a failing verdict is about two problems, and does not say yet what fails on the other one."""
    return verdict.status is Status.FAIL and not verdict.case and verdict.other is None


def _failures(subject: Subject, execution: Execution) -> set[tuple[str, str, str]]:
    seen = [] if execution.watch is None else list(execution.watch.reports.values())
    found: set[tuple[str, str, str]] = {("sanitizer", report.kind, report.argument) for report in seen}
    if not beyond_oracle(execution.problem.case):
        try:
            wrong = shape_failures(execution) or check_accuracy(subject, execution, statistics=False).failures()
        except FlashverifyError:  # the oracle has no say on such tensors
            wrong = []
        found |= {(v.check, v.error, v.output) for v in wrong if v.mode != _STRICT}
    return found

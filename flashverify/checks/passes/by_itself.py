"""Whether a problem that a check made from a case is wrong by itself: then that is the failure, and the check does not repeat it.

A check that runs another problem asks a question about two problems. Where the other one fails `accuracy` on a call of its own, in
memory of its own, the answer says nothing new, and the failure of `accuracy` stands with the text of that problem's own case. A
subject that keeps something between calls fails there too, although the problem is right when it is asked first: it is told by two
problems of sizes that were never asked, each of which is right first and wrong second.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import check_accuracy, shape_failures
from flashverify.checks.passes.base_pass import beyond_oracle
from flashverify.checks.passes.execution import execute
from flashverify.errors import UsageError
from flashverify.judge.verdict import Status, Verdict
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["remembers", "told_by_itself", "wrong_by_itself"]

_MORE = (3, 17)
"""Fewest and most rows and keys that are added for sizes that were never asked."""


def wrong_by_itself(subject: Subject, case: Case) -> list[Verdict]:
    """The failures of `accuracy` and `nonfinite` of a case on a call of its own, one for each output."""
    problem, _ = materialize(case, subject.device())
    execution = execute(subject, problem)
    failing = shape_failures(execution) or check_accuracy(subject, execution).failures()
    return list({verdict.output: verdict for verdict in reversed(failing)}.values())[::-1]


def told_by_itself(subject: Subject, base: Case, found: list[Verdict], others: Iterable[Case]) -> list[Verdict]:
    """What a check found, or where another problem is wrong by itself, that problem's own failures.

    Args:
        subject: the kernel under test.
        base: the case that the check was asked of, within its bounds.
        found: the verdicts of the check.
        others: the cases of the problems that it ran.

    Returns:
        `found`, where no other problem is wrong by itself in an output that failed. Otherwise the failures of the first such problem,
        with its case, in place of those of the same outputs, and of the gradients where O or LSE is among these.
    """
    failing = {verdict.output for verdict in found if verdict.status is Status.FAIL}
    for case in dict.fromkeys(others) if failing else ():
        if case == base or beyond_oracle(case) or subject.supports.refusal(case) is not None:
            continue
        wrong = [verdict for verdict in wrong_by_itself(subject, case) if verdict.output in failing]
        if wrong and not remembers(subject, base, case):
            said = {verdict.output for verdict in wrong}
            follows = bool(said & set(FORWARD))
            left = [v for v in found if v.status is not Status.FAIL or not (follows or v.output in said)]
            return left + [msgspec.structs.replace(verdict, case=str(case)) for verdict in wrong]
    return found


def remembers(subject: Subject, one: Case, other: Case) -> bool:
    """Whether the subject answers a problem by what it kept of the one before it.

    Args:
        subject: the kernel under test.
        one: a case.
        other: a case that is wrong after it.

    Returns:
        Whether at two sizes, none of which the subject was asked before, the first case is right and the second one is wrong,
        whichever of the two comes first. False where the cases have no such sizes.
    """
    for number, (first, second) in enumerate(((other, one), (one, other))):
        more = _MORE[0] + (one.values.seed + number * (_MORE[1] // 2)) % (_MORE[1] - _MORE[0])
        grown = _grown(first, more), _grown(second, more)
        for case, wrong in zip(grown, (False, True), strict=True):
            if case is None or subject.supports.refusal(case) is not None:
                return False
            if bool(wrong_by_itself(subject, case)) is not wrong:
                return False
    return True


def _grown(case: Case, more: int) -> Case | None:
    """The case with `more` rows and keys; None where its mask goes with its shape."""
    mask = case.mask
    if mask.packed is not None:
        return None
    changed: dict[str, Any] = {}
    try:
        for part, value in mask.given():
            pieces = part.per_sequence(value, mask)
            if pieces is None:
                changed[part.name] = part.grow(value, more, more)
            else:
                changed[part.name] = part.join([part.grow(piece, more, more) for piece in pieces])
        values = dataclasses.replace(case.values, edits=())
        return dataclasses.replace(
            case,
            seq_q=case.seq_q + more,
            seq_k=case.seq_k + more,
            mask=dataclasses.replace(mask, **changed),
            values=values,
        )
    except UsageError:
        return None

"""Whether a problem that a check made from a case is wrong by itself: then that is the failure, and the check does not repeat it.

A check that runs another problem asks a question about two problems. Where the other one fails `accuracy` on a call of its own, in
memory of its own, the answer says nothing new, and the failure of `accuracy` stands with the text of that problem's own case. A
subject that keeps something between calls fails there too, although the problem is right when it is asked first: it is told by
problems of sizes that were never asked, which are right first and wrong second.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.case.case import Values
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
_STEPS = (_MORE[1] - _MORE[0]) // 2
_TILE = 16
"""Sizes that differ by it fill a tile alike."""


def wrong_by_itself(subject: Subject, case: Case) -> list[Verdict]:
    """The failures of `accuracy` and `nonfinite` of a case on a call of its own, one for each output."""
    problem, _ = materialize(case, subject.device())
    execution = execute(subject, problem)
    failing = shape_failures(execution) or check_accuracy(subject, execution, statistics=False).failures()
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
        whichever of the two comes first; or whether at four sizes the other case is right wherever it comes first and wrong wherever
        it comes after the first one. False where the cases have no such sizes.
    """
    step = (one.values.seed % _STEPS) + _MORE[0]
    near = [_grown_pair(one, other, step + number * _STEPS) for number in range(2)]
    if _answers(subject, near[0][::-1], (False, True)) and _answers(subject, near[1], (False, True)):
        return True
    far = [_grown_pair(one, other, step + number * _TILE) for number in range(1, 5)]
    after = all(_answers(subject, pair, (False, True)) for pair in far[1:3])
    return after and all(_answers(subject, pair[1:], (False,)) for pair in (far[0], far[3]))


def _grown_pair(one: Case, other: Case, more: int) -> tuple[Case | None, Case | None]:
    return _grown(one, more), _grown(other, more)


def _answers(subject: Subject, cases: tuple[Case | None, ...], wrong: tuple[bool, ...]) -> bool:
    """Whether the cases, asked in this order, are wrong or right as said; False where the subject does not accept one."""
    if any(case is None or subject.supports.refusal(case) is not None for case in cases):
        return False
    return all(bool(wrong_by_itself(subject, case)) is said for case, said in zip(cases, wrong, strict=True) if case)


def _grown(case: Case, more: int) -> Case | None:
    """The case with `more` rows and keys and normal values, on which what is kept shows; None where its mask goes with its shape."""
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
                changed[part.name] = part.join([part.grow(piece, more, more) for piece in pieces], packed=False)
        values = Values(regime="normal", seed=case.values.seed)
        return dataclasses.replace(
            case,
            seq_q=case.seq_q + more,
            seq_k=case.seq_k + more,
            mask=dataclasses.replace(mask, **changed),
            values=values,
        )
    except UsageError:
        return None

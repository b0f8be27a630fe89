"""The check `counting`: which key entered which row how often, forward and backward (docs/xray.md)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.case.case import Values
from flashverify.checks.passes.by_itself import told_by_itself
from flashverify.checks.passes.other_problems import with_counts
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["SPEC", "check_counting", "count_masks"]

_PAIRS = 1 << 34
"""Pairs of all heads up to which the declared mask is summed up: 65,536 rows and keys of four heads."""
_TELLING = ("normal", "q-zero")
"""Values with which a wrong pair mostly shows in a plain pass."""


def check_counting(subject: Subject, execution: Execution) -> Iterator[Verdict]:
    """Counts the pairs of rows and keys that enter O, dV, dQ and dK, on the mask, the shape and the layout of the case.

    At all shapes: a single wrong pair is seen, and several of them unless they cancel by chance. Errors are those of
    `flashverify.xray.record.ERRORS`; outputs `o`, `lse`, `dv`, `dq`, `dk`. A case in which nothing can be counted, one with
    dropout or without rows or keys, gives no verdict.

    Args:
        subject: the kernel under test.
        execution: a pass over the case; its values are not used.
    """
    yield from count_masks(subject, execution)[0]


def count_masks(subject: Subject, execution: Execution) -> tuple[list[Verdict], int]:
    """The failing verdicts of `check_counting`, and how many cells, rows by LSE included, were read.

    It costs three forwards and three backwards of a small problem, a forward where there is no backward; only what differs is read
    again, pair by pair, to be named.
    """
    from flashverify.xray.difference import differences
    from flashverify.xray.measure import measure
    from flashverify.xray.probe import refusal

    problem = execution.problem
    if refusal(problem.case) is not None:
        return [], 0
    found = measure(subject, problem, cheap=True)
    wrong = differences(found)
    if wrong:
        wrong = differences(measure(subject, problem)) or wrong
    rows = 0 if found.count is None else found.count.declared.numel() - found.count.unresolved
    verdicts = [
        Verdict(
            check="counting",
            status=Status.FAIL,
            output=each.output,
            error=each.error,
            index=each.index,
            message=each.message,
        )
        for each in wrong
    ]
    return verdicts, rows + sum(view.cells for view in found.views)


def _run(base: BasePass, names: tuple[str, ...]) -> list[Verdict] | None:
    if not names:
        return None
    found, cells = count_masks(base.subject, base.execution)
    others = (dataclasses.replace(base.case, values=Values(regime=regime)) for regime in _TELLING)
    told = told_by_itself(base.subject, base.case, found, others)
    return with_counts(told, base.case) if cells or found else None


SPEC = CheckSpec(
    name="counting",
    question="Which key entered which row how often, forward and backward, exactly?",
    needs=(Need.PASSES,),
    questions=(Question(name="counting", passes=3),),
    errors=(
        ErrorClass("leaked", "{output} sees a masked key", "a pair entered although it is masked"),
        ErrorClass("dropped", "{output} misses a visible key", "a visible pair did not enter"),
        ErrorClass("doubled", "{output} counts a key more than once", "a visible pair entered more than once"),
        ErrorClass(
            "not-integer", "{output} weighs a key by no whole number", "a pair entered a fractional number of times"
        ),
        ErrorClass(
            "moved", "{output} takes one key for another", "pairs changed places although their number is right"
        ),
        ErrorClass("head-map", "{output} reads the wrong head", "a query head read another kv head than its group's"),
        ErrorClass("lse-count", "LSE counts another number of keys", "the mass of LSE is not that of the visible keys"),
    ),
    run=_run,
    applies=lambda _, case: case.batch * case.heads_q * case.seq_q * case.seq_k <= _PAIRS,
    of_right_passes=True,
    beyond_oracle=True,
)

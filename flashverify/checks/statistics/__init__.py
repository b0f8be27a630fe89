"""The check `statistics`: what the errors of all elements of a 16-bit output, or of the LSE, say together, each within its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.spec import CheckSpec, ErrorClass, Need

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

__all__ = ["SPEC"]

_PAIRS = {"cpu": 1 << 21, "cuda": 1 << 24}
"""Rows times keys, over all heads and sequences, up to which it is asked: all of them are held at once, a few dozen times in float64."""


def _applies(subject: Subject, case: Case) -> bool:
    from flashverify.checks.statistics.heads import asked_groups
    from flashverify.checks.statistics.judged import GROUPS

    pairs = case.batch * case.heads_q * case.seq_q * case.seq_k
    if case.quantised is not None:  # the roundings of dequantised operands are shared by rows and channels
        return False
    return (
        (case.dtype != "fp32" or case.precision == "ieee")
        and asked_groups(case) >= GROUPS
        and 0 < pairs <= _PAIRS[subject.device()]
    )


def _run(base: BasePass, _: tuple[str, ...]) -> list[Verdict] | None:
    from flashverify.checks.statistics.judged import check_statistics

    return check_statistics(base)


SPEC = CheckSpec(
    name="statistics",
    question="Have the errors of a 16-bit output or of the LSE a common direction, a link to one tile, or a size that roundings to nearest do not have?",
    needs=(Need.ORACLE,),
    errors=(
        ErrorClass(
            "drift",
            "errors of {output} share a direction",
            "the output is too large or too small by a common fraction, far below the bound of an element: something is truncated or scaled",
        ),
        ErrorClass(
            "tile",
            "errors of {output} follow one tile",
            "the share of one tile of keys or rows enters by a common fraction too much or too little, far below the bound of an element",
        ),
        ErrorClass(
            "spread",
            "errors of {output} are larger than its roundings",
            "more is rounded to 16 bits than the form declares, such as an accumulator",
        ),
    ),
    run=_run,
    applies=_applies,
    of_right_passes=True,
)

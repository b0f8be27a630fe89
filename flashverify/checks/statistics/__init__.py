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

_EVEN_REGIMES = frozenset({"normal", "v-positive", "outlier", "negative", "logits-1e2", "few-keys"})
"""Regimes whose values are spread so evenly that the roundings of two rows, or of two keys, have nothing to do with each other."""
_NARROW = frozenset({"normal", "v-positive"})
"""Those with logits of about `|scale| sqrt(dim)`, which a softcap as large leaves apart."""
_LEAST_LOGIT = 0.25
"""Spread of the products below which biases alone decide, the same for many rows."""
_PAIRS = {"cpu": 1 << 21, "cuda": 1 << 24}
"""Rows times keys, over all heads and sequences, up to which it is asked: all of them are held at once, a few dozen times in float64."""


def _applies(subject: Subject, case: Case) -> bool:
    from flashverify.checks.statistics.judged import GROUPS

    groups = case.batch * max(case.heads_q * case.seq_q, case.heads_kv * case.seq_k)
    pairs = case.batch * case.heads_q * case.seq_q * case.seq_k
    spread, softcap = abs(case.softmax_scale) * case.dim_qk**0.5, case.logits.softcap
    even = _EVEN_REGIMES.issuperset(case.values.regimes) and spread >= _LEAST_LOGIT
    bent = softcap is not None and (not _NARROW.issuperset(case.values.regimes) or softcap < spread)
    if case.quantised is not None:  # the roundings of dequantised operands are shared by rows and channels
        return False
    return (
        (case.dtype != "fp32" or case.precision == "ieee")
        and even
        and not bent
        and groups >= GROUPS
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

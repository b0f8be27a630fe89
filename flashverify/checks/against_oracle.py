"""The checks `accuracy` and `nonfinite`: two answers of one comparison with the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.sanitizer import explained
from flashverify.checks.spec import CheckSpec, ErrorClass, Need
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from flashverify.checks.passes.base_pass import BasePass

__all__ = ["ACCURACY", "NONFINITE"]


def _accuracy(base: BasePass, _: tuple[str, ...]) -> list[Verdict] | None:
    return _compared(base, "accuracy")


def _nonfinite(base: BasePass, _: tuple[str, ...]) -> list[Verdict] | None:
    return explained(base.subject, base.execution, _compared(base, "nonfinite"))


def _compared(base: BasePass, check: str) -> list[Verdict]:
    """The failures of one of the two checks; `exempt` where no element could be compared, which is no pass."""
    judged = base.accuracy
    stats = [comparison.stats for comparison in judged.comparisons]
    compared = sum(each.elements - each.exempt for each in stats) + judged.promised
    if not compared and any(each.elements for each in stats):
        return [_exempt(check, "every element of every output is exempt: nothing was compared")]
    return [verdict for verdict in judged.failures() if verdict.check == check]


def _exempt(check: str, message: str) -> Verdict:
    return Verdict(check=check, status=Status.EXEMPT, message=message)


ACCURACY = CheckSpec(
    name="accuracy",
    question="Is every element of O, LSE, delta and every gradient within its bound, end to end, and are the gradients within "
    "theirs once more, given the kernel's own O and LSE?",
    needs=(Need.ORACLE,),
    errors=(
        ErrorClass(
            "bound",
            "{output} is outside its bound",
            "an element is further from the exact value than rounding can take it",
        ),
        ErrorClass(
            "empty-row",
            "{output} is wrong where no key is seen",
            "a row without keys does not hold the value that the contract fixes",
        ),
        ErrorClass(
            "shape",
            "{output} has the wrong shape or dtype",
            "an output is not of the shape and dtype that the case calls for",
        ),
        ErrorClass("missing", "{output} is not returned", "an output that the contract promises was not returned"),
    ),
    run=_accuracy,
    beyond_oracle=True,
)
NONFINITE = CheckSpec(
    name="nonfinite",
    question="Is every NaN and every infinity required or allowed, with its sign? If the subject promises it, do huge biases, slopes "
    "and sinks leave the outputs finite?",
    needs=(Need.ORACLE,),
    errors=(
        ErrorClass(
            "nan", "{output} is NaN where it must not be", "an element is NaN though no input and no overflow allows it"
        ),
        ErrorClass(
            "inf", "{output} is infinite where it must not be", "an element is infinite though no overflow allows it"
        ),
        ErrorClass(
            "finite",
            "{output} is finite where it must overflow",
            "an element is finite though its exact value leaves the format",
        ),
        ErrorClass(
            "saturation",
            "{output} is lost to a huge bias, slope or sink",
            "a huge term of the logits spoilt an element although the contract promises saturation",
        ),
    ),
    run=_nonfinite,
    beyond_oracle=True,
)

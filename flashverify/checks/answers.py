"""What is asked of every element of every output of a case: a value, a bound and a rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from flashverify.checks.accuracy import judged_form, tainted
from flashverify.checks.left_open import pinned_elements, undefined_elements
from flashverify.outputs import OUTPUTS
from flashverify.truth import Truth, inputs_of

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem
    from flashverify.numerics import OutputBound
    from flashverify.subjects.interface import Subject

__all__ = ["Answer", "Rule", "answers_of"]


class Rule(IntEnum):
    """What is right at an element, besides its exact value. A NaN is right nowhere but where everything is."""

    BOUND = 0
    """A finite value within the bound."""
    ANY = 1
    """Everything: nothing is asked."""
    MAY_OVERFLOW = 2
    """That, or an infinity with the sign of the exact value."""
    MAY_FLIP = 3
    """That, or an infinity of either sign."""
    MUST_OVERFLOW = 4
    """An infinity with the sign of the exact value, nothing else."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One output. All three tensors have its shape.

    Attributes:
        expected: the exact value, float64, in the units of the output.
        bound: how far a right value may be from it, float64, in the same units; 0 where a contract fixes the value.
        rule: a `Rule`, uint8.
    """

    expected: torch.Tensor
    bound: torch.Tensor
    rule: torch.Tensor


def answers_of(subject: Subject, problem: Problem) -> dict[str, Answer]:
    """The answers of a case by output, as the check `accuracy` judges them end to end.

    Nothing of the subject runs but its form. Gradients are there where the case has a dO and the subject promises them; the LSE where it
    returns one. Where a form leaves open what the backward starts from, a bound is the widest over its readings.

    Args:
        subject: whose form and contract are assumed.
        problem: of a case that it supports, on the CPU.
    """
    contract = subject.contract
    inputs, tidy = inputs_of(problem)
    form = judged_form(subject, problem)
    truth = Truth(inputs, problem.case.dtype, form)
    found = truth.forward() | (truth.widest() if inputs.do is not None else {})
    promised = {"o", *contract.gradients} | ({"lse"} if contract.lse_base else set())
    taint, undefined = tainted(tidy, form), undefined_elements(problem, contract)
    pinned = pinned_elements(truth, problem, contract)
    return {
        name: _answer(name, *found[name], (taint.get(name), undefined.get(name)), pinned.get(name))
        for name in OUTPUTS
        if name in found and name in promised
    }


def _answer(
    name: str,
    value: torch.Tensor,
    bound: OutputBound,
    left_open: tuple[torch.Tensor | None, ...],
    pinned: tuple[torch.Tensor, float] | None,
) -> Answer:
    import torch

    rule = torch.zeros_like(value, dtype=torch.uint8)
    for where, number in (
        (bound.may_overflow, Rule.MAY_OVERFLOW),
        (bound.may_flip, Rule.MAY_FLIP),
        (bound.must_overflow, Rule.MUST_OVERFLOW),
        (bound.exempt, Rule.ANY),
    ):
        rule = rule.masked_fill(where, int(number))
    expected, width = value, bound.total.masked_fill(bound.exempt, 0.0)
    if pinned is not None:
        where = pinned[0].expand_as(value)
        if name in ("delta", "dq"):  # of a row without keys whose dP overflows nothing is asked
            where = where & ~bound.exempt
        expected, width = expected.masked_fill(where, pinned[1]), width.masked_fill(where, 0.0)
        rule = rule.masked_fill(where, int(Rule.BOUND))
    for mask in left_open:
        if mask is not None:
            rule = rule.masked_fill(mask, int(Rule.ANY))
    nothing = rule == int(Rule.ANY)
    return Answer(expected.masked_fill(nothing, 0.0), width.masked_fill(nothing, 0.0), rule)

"""What the values and bounds of a problem ask of each output."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.checks.left_open import outside, pinned_elements
from flashverify.diagnosis.expected import of_bound
from flashverify.outputs import output

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.problem import Problem
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.subjects.interface import Contract
    from flashverify.truth import Truth

__all__ = ["backward_asked", "forward_asked"]


def forward_asked(truth: Truth, problem: Problem, contract: Contract) -> Expectations:
    """What `truth` asks of the outputs of the forward."""
    values = {name: of_bound(*pair) for name, pair in truth.forward().items()}
    pinned = pinned_elements(truth, problem, contract)
    return {name: value.pinned(*pinned[name]) if name in pinned else value for name, value in values.items()}


def backward_asked(truth: Truth, problem: Problem, o: Tensor | None, lse: Tensor | None) -> Expectations:
    """What `truth` asks of the gradients, given O and its LSE in the units of the subject, or end to end without them."""
    pairs = truth.widest() if o is None or lse is None else truth.conditional(o, lse)
    values = {name: of_bound(*pair) for name, pair in pairs.items()}
    for name, mask in outside(problem).items():
        if (
            name in values and output(name).channels
        ):  # whatever a kernel computes, what lies outside the lengths may have been cleared
            values[name] = dataclasses.replace(values[name], zero=mask)
    return values

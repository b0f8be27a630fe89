"""What the values and bounds of a problem ask of each output."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.checks.accuracy import outside
from flashverify.diagnosis.expected import of_bound
from flashverify.outputs import output, pinned_rows

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.problem import Problem
    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.subjects.interface import Contract
    from flashverify.truth import Truth

__all__ = ["backward_asked", "forward_asked"]


def forward_asked(truth: Truth, contract: Contract) -> Expectations:
    """What `truth` asks of the outputs of the forward."""
    values = {name: of_bound(*pair) for name, pair in truth.forward().items()}
    pinned = pinned_rows(truth.empty_rows, empty_row_o=contract.empty_row_o, empty_row_lse=contract.empty_row_lse)
    return {name: value.pinned(*pinned[name]) for name, value in values.items()}


def backward_asked(truth: Truth, problem: Problem, o: Tensor | None, lse: Tensor | None) -> Expectations:
    """What `truth` asks of the gradients, given O and its LSE in the units of the subject, or without them."""
    pairs = truth.backward() if o is None or lse is None else truth.conditional(o, lse)
    values = {name: of_bound(*pair) for name, pair in pairs.items()}
    for name, mask in outside(problem).items():
        if (
            name in values and output(name).channels
        ):  # whatever a kernel computes, what lies outside the lengths may have been cleared
            values[name] = dataclasses.replace(values[name], zero=mask)
    return values

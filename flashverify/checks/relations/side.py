"""The outputs of a pass with the bounds of its own problem, which relations put beside those of another pass."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flashverify.checks.accuracy import judged_form
from flashverify.checks.left_open import undefined_elements
from flashverify.outputs import FORWARD
from flashverify.truth import Inputs, Truth, inputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flashverify.checks.passes.execution import Execution
    from flashverify.numerics import OutputBound
    from flashverify.subjects.interface import Subject
    from flashverify.truth.gradients import Pairs

__all__ = ["Side", "Sides", "sides"]

Sides = dict[str, "Side"]


@dataclass(frozen=True, slots=True)
class Side:
    """One output of one pass.

    Attributes:
        value: float64.
        bound: of its shape, as `free`.
        free: the elements of which nothing is asked, bool.
        wider: the same where a form leaves open what its backward reads: with the largest bound over all readings, which are not computed
            where values keep to the bound of the first one. None where there is no larger bound.
    """

    value: torch.Tensor
    bound: torch.Tensor
    free: torch.Tensor
    wider: Callable[[], Side] | None = None

    def widest(self) -> Side:
        """The side with its largest bound."""
        return self if self.wider is None else self.wider()

    def _changed(self, change: Callable[[Side], Side]) -> Side:
        wider = self.wider
        found = change(self)
        return found if wider is None else replace(found, wider=lambda: change(wider()))

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Side:
        """The same with each tensor cut, turned or permuted."""
        return self._changed(lambda side: Side(change(side.value), change(side.bound), change(side.free)))

    def times(self, factor: float | torch.Tensor) -> Side:
        """A multiple."""
        size = abs(factor) if isinstance(factor, float) else factor.abs()
        return self._changed(lambda side: Side(side.value * factor, side.bound * size, side.free))

    def plus(self, other: Side) -> Side:
        """The sum of two passes."""
        found = Side(self.value + other.value, self.bound + other.bound, self.free | other.free)
        if self.wider is None and other.wider is None:
            return found
        return replace(found, wider=lambda: self.widest().plus(other.widest()))

    def shifted(self, by: float) -> Side:
        """The value moved by a constant."""
        return self._changed(lambda side: Side(side.value + by, side.bound, side.free))

    def without(self, free: torch.Tensor) -> Side:
        """The same with more elements free."""
        return self._changed(lambda side: Side(side.value, side.bound, side.free | free))


def sides(subject: Subject, execution: Execution, inputs: Inputs | None = None, *, truth: Truth | None = None) -> Sides:
    """Every output of a pass with the bound of its own problem; free are exempt, undefined and overflowing elements, and empty rows of O and LSE.

    Args:
        subject: the kernel under test.
        execution: the pass.
        inputs: what the oracle is given, where it is not what the case says.
        truth: of the problem, where it is known.
    """
    import torch

    problem = execution.problem
    with torch.inference_mode():  # as `accuracy`, whose truth this may be
        if truth is None:
            truth = Truth(inputs or inputs_of(problem)[0], problem.case.dtype, judged_form(subject, problem))
        return _sides(execution, truth, undefined_elements(problem, subject.contract))


def _sides(execution: Execution, truth: Truth, undefined: Mapping[str, torch.Tensor]) -> Sides:
    several = truth.inputs.do is not None and len(truth.readings) > 1
    narrow = truth.forward() | (truth.backward() if truth.inputs.do is not None else {})
    wide = functools.cache(functools.partial(_widest, truth))

    def side(name: str, bound: OutputBound, free: torch.Tensor) -> Side:
        tensor = execution.outputs[name]
        if name in undefined:
            free = free | undefined[name]
        if name in FORWARD:
            free = free | (truth.empty_rows.unsqueeze(-1) if name == "o" else truth.empty_rows)
        return Side(tensor.double(), bound.total, free.expand(tensor.shape))

    def whole(name: str, bound: OutputBound) -> Side:
        return side(name, bound, bound.exempt | bound.may_overflow | bound.must_overflow)

    def first(name: str, bound: OutputBound) -> Side:
        """That of one reading: what has to overflow under it may be finite under another one."""
        found = side(name, bound, bound.exempt | bound.may_overflow)
        return replace(found, wider=lambda: whole(name, wide()[name][1]))

    return {
        name: (first if several and name not in FORWARD else whole)(name, narrow[name][1]) for name in execution.outputs
    }


def _widest(truth: Truth) -> Pairs:
    import torch

    with torch.inference_mode():
        return truth.widest()

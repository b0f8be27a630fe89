"""What every relation starts from: a pass, and two passes compared bit for bit or within both bounds."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flashverify.checks.accuracy import judged_form
from flashverify.checks.passes.bitwise import first_difference, first_differences
from flashverify.checks.passes.execution import execute
from flashverify.checks.relations.side import sides
from flashverify.judge.verdict import Status, Verdict, to_hex
from flashverify.truth import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch

    from flashverify.case.case import Case
    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.checks.passes.known import Known
    from flashverify.checks.relations.side import Side, Sides
    from flashverify.interpreter.repeats import Launches
    from flashverify.numerics import BoundInputs
    from flashverify.subjects.interface import Subject
    from flashverify.truth import Inputs, Truth

__all__ = ["Ground", "alike", "bitwise", "failure", "within"]


@dataclass(frozen=True)
class Ground:
    """A pass of a subject from which relations set out.

    Attributes:
        subject: the kernel under test.
        base: the pass.
        known: what the comparison of the base pass with the oracle left; None where that was of a part, or nobody made it.
        launches: see `BasePass.known`.
        asked: the cases of the other passes that were run.
        passes: those of them whose tensors and cases say what their right outputs are.
    """

    subject: Subject
    base: Execution
    known: Known | None = None
    launches: Launches | None = None
    asked: list[Case] = field(default_factory=list)
    passes: list[Execution] = field(default_factory=list)

    @property
    def problem(self) -> Problem:
        """The problem of the base pass."""
        return self.base.problem

    @functools.cached_property
    def _tidy(self) -> tuple[Inputs, bool]:
        inputs, tidy = inputs_of(self.problem)
        return inputs, not tidy.taint

    @property
    def inputs(self) -> Inputs:
        """The inputs of the base pass, as the oracles take them."""
        return self._tidy[0]

    @property
    def finite(self) -> bool:
        """Whether every input inside the declared lengths is finite: no relation is asked of other ones."""
        return self._tidy[1] if self.known is None else not self.known.tidy.taint

    @property
    def exact(self) -> bool:
        """Whether the subject promises the bits of a repeated pass: without it every relation holds within bounds."""
        return bool(self.subject.contract.deterministic)

    @property
    def _truth(self) -> Truth | None:
        """That of the base pass, where it is known on the device of its tensors."""
        found = None if self.known is None else self.known.truth
        return found if found is not None and found.inputs.q.device == self.problem.q.device else None

    @property
    def bounds(self) -> BoundInputs:
        """The problem of the base pass as the bounds take it."""
        from flashverify.numerics import BoundInputs

        if self._truth is not None:
            return self._truth.problem
        i, form = self.inputs.dense(), judged_form(self.subject, self.problem)
        return BoundInputs.of(i.q, i.k, i.v, dtype=self.problem.case.dtype, form=form, **i.problem())

    @functools.cached_property
    def sides(self) -> Sides:
        """The outputs of the base pass with their bounds."""
        truth = self._truth
        return sides(self.subject, self.base, None if truth is not None else self.inputs, truth=truth)

    def run(self, problem: Problem, *, told: bool = True) -> Execution:
        """Another pass.

        Args:
            problem: what the subject is given.
            told: whether its tensors and its case say what the right outputs are.
        """
        self.asked.append(problem.case)
        found = execute(self.subject, problem, known=self.launches, memory=False)
        self.passes.extend([found] if told else [])
        return found

    def forget(self) -> None:
        """The next relation is asked."""
        self.asked.clear()
        self.passes.clear()

    def within(self, problem: Problem, inputs: Inputs | None = None) -> Sides:
        """The outputs of another pass with their bounds.

        Args:
            problem: what the subject is given.
            inputs: what the oracle is given, where it is not what the case of `problem` says.
        """
        return sides(self.subject, self.run(problem, told=inputs is None), inputs)


def alike(pairs: Iterable[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]) -> bool:
    """Whether passes differ nowhere that is asked, so that they are within any bounds of each other, and none is computed.

    An element that is not finite in both is free in the base pass, whose outputs are right wherever a relation is asked.

    Args:
        pairs: of outputs, the base's first, with the elements that are free, bool, or None.
    """
    return not any(first_differences(list(pairs)))


def within(relation: str, left: Mapping[str, Side], right: Mapping[str, Side]) -> Iterator[Verdict]:
    """A failure for every output that both sides have where `|left - right|` exceeds the sum of the bounds somewhere."""
    import torch

    for name, a in left.items():
        if name not in right:
            continue
        b = right[name]
        error, bound, wrong = _apart(a, b)
        if not bool(wrong.any()):
            continue
        if a.wider is not None or b.wider is not None:
            a, b = a.widest(), b.widest()
            error, bound, wrong = _apart(a, b)
            if not bool(wrong.any()):
                continue
        ratio = torch.where(wrong, torch.nan_to_num(error / bound, nan=torch.inf), -1.0)
        at = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
        text = (
            f"{float(a.value[at]):.9g} against {float(b.value[at]):.9g}, apart by {float(error[at]):.3g} where both bounds "
            f"allow {float(bound[at]):.3g} ({int(wrong.sum())} of {wrong.numel()} elements)"
        )
        yield failure(relation, name, at, text, ratio=float(ratio[at]))


def _apart(a: Side, b: Side) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """How far two sides are from each other, how far they may be, and where they are further than that."""
    error, bound = (a.value - b.value).abs(), a.bound + b.bound
    return error, bound, ~(error <= bound) & ~(a.free | b.free)


def bitwise(
    relation: str, pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]], ignore: Mapping[str, torch.Tensor]
) -> Iterator[Verdict]:
    """A failure for every output whose two tensors differ outside the elements to be ignored."""
    for name, (a, b) in pairs.items():
        found = first_difference(a, b, ignore.get(name))
        if found is not None:
            index, text = found
            yield failure(relation, name, index, text)


def failure(relation: str, output: str, index: tuple[int, ...], text: str, *, ratio: float | None = None) -> Verdict:
    """The failing verdict of a relation."""
    return Verdict(
        check="relations",
        status=Status.FAIL,
        output=output,
        error=relation,
        ratio="" if ratio is None else to_hex(ratio),
        index=index,
        message=f"{output}{list(index) or ''} breaks the relation {relation}: {text}",
    )

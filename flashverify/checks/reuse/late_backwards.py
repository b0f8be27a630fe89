"""Backwards that do not follow their forward at once: another forward, or another backward of the same one, comes between.

Layers of a network run all their forwards before the first backward, so what a forward keeps must outlive the next forward. And what a
backward keeps with a forward, such as delta, must not serve another dO.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.passes.execution import Execution, execute, sparing
from flashverify.checks.reuse.asking import same
from flashverify.checks.reuse.problems import with_other_values
from flashverify.outputs import BACKWARD, FORWARD, OUTPUTS
from flashverify.subjects.blame import subject_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.problem import Problem
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Forward, Gradients

__all__ = ["after_other_forward", "with_other_gradients"]


def after_other_forward(first: BasePass) -> Iterator[Verdict] | None:
    """The forward of the case, that of one with other values, then the backward of the case."""
    if not first.case.grad.backward:
        return None
    subject, base = first.subject, first.execution
    other, _ = materialize(with_other_values(first.case), subject.device())
    with sparing(base.problem, first.known), subject_code():
        forward = subject.forward(base.problem)
        between = subject.forward(other)
        gradients = subject.backward(base.problem, forward)
    del between  # it lives until the backward of the first is done, as that of the next layer does
    again = _outputs(base.problem, forward, gradients)
    return same(subject, base, again, "forward-between", "a call whose backward comes after another forward")


def with_other_gradients(first: BasePass) -> Iterator[Verdict] | None:
    """A backward of the case, then one of the same forward with another dO and dLSE, which must be that of a call of its own."""
    if not first.case.grad.backward:
        return None
    subject, problem = first.subject, first.execution.problem
    values, _ = materialize(with_other_values(first.case), subject.device())
    other = dataclasses.replace(problem, do=values.do, dlse=values.dlse)
    with sparing(problem, first.known), subject_code():
        forward = subject.forward(problem)
        try:
            subject.backward(problem, forward)
            gradients = subject.backward(other, forward)
        except RuntimeError as error:
            if "second time" in str(
                error
            ):  # its graph is freed by the first backward, which the question `backward` says
                return None
            raise
    again = _outputs(other, forward, gradients)
    alone = execute(subject, other, known=first.known)
    return same(subject, alone, again, "another-do", "a second backward with another dO", "a call of its own")


def _outputs(problem: Problem, forward: Forward, gradients: Gradients) -> Execution:
    found = {name: getattr(forward, name) for name in FORWARD} | {name: getattr(gradients, name) for name in BACKWARD}
    outputs = {name: found[name].detach() for name in OUTPUTS if found.get(name) is not None}
    return Execution(problem, outputs, {}, ())

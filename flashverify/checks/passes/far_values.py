"""A pass in tensors that span more than 2^31 elements, judged by its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.far.guard import FarOutputs
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.passes.bitwise import first_difference
from flashverify.checks.passes.execution import execute
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from flashverify.case.problem import Problem
    from flashverify.checks.passes.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["far_values", "wrong_values"]


def far_values(
    subject: Subject, base: Execution, problem: Problem, undefined: dict[str, torch.Tensor], what: str
) -> Iterator[Verdict]:
    """Failing verdicts of the error class `far-values`.

    Args:
        subject: the kernel under test.
        base: the pass over the same values in small tensors.
        problem: the far one.
        undefined: per output the elements that the contract leaves open.
        what: is stretched, for the message.

    Raises:
        Exception: whatever the subject raises.
    """
    execution = execute(subject, problem, guarding=FarOutputs(None))
    yield from wrong_values(subject, base, execution, undefined, what)


def wrong_values(
    subject: Subject, base: Execution, far: Execution, undefined: dict[str, torch.Tensor], what: str
) -> Iterator[Verdict]:
    """Where bits differ, outputs outside their bounds: other bits alone may come of another path that the subject takes by strides.

    Args:
        subject: the kernel under test.
        base: the pass over the same values in small tensors.
        far: the pass in far ones.
        undefined: per output the elements that the contract leaves open.
        what: is stretched, for the message.
    """
    alike = (
        name in far.outputs and first_difference(expected, far.outputs[name], undefined.get(name)) is None
        for name, expected in base.outputs.items()
    )
    if all(alike):
        return
    failing = {
        verdict.output: verdict for verdict in reversed(check_accuracy(subject, far, statistics=False).failures())
    }
    for verdict in failing.values():
        yield Verdict(
            check="addresses",
            status=Status.FAIL,
            output=verdict.output,
            error="far-values",
            index=verdict.index,
            message=f"{verdict.message}; {what}",
        )

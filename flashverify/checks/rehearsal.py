"""A case that is run for its launches alone: every pass that judging it makes, and no verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import Accuracy
from flashverify.checks.passes.base_pass import BasePass
from flashverify.checks.passes.comparing import nothing_compared
from flashverify.checks.passes.execution import execute
from flashverify.checks.registry import CHECK_SPECS
from flashverify.checks.spec import Need

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.checks.plan import Plan
    from flashverify.subjects.interface import Subject

__all__ = ["rehearse_case"]


class _Unjudged(BasePass):
    """A base pass of which nothing is compared."""

    @property
    def accuracy(self) -> Accuracy:
        """No comparison."""
        return Accuracy((), ())


def rehearse_case(subject: Subject, case: Case, plan: Plan) -> str:
    """Runs the passes that judging the case by a plan would make, where launches compute nothing (`rehearsed_launches`).

    Args:
        subject: the kernel under test.
        case: the problem.
        plan: the checks that it will be put to.

    Returns:
        What the base pass raised, in words; empty where it ran. A check that stumbles over outputs that nobody computed is left there.
    """
    plan = plan.for_case(case)
    if subject.supports.refusal(case) is not None:
        return ""
    try:
        problem, arena = materialize(case, subject.device())
        execution = execute(subject, problem)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    base = _Unjudged(subject, execution, arena, plan.calls, plan.configs, plan.reported)
    for spec in CHECK_SPECS:
        makes_passes = spec.questions and Need.INTERPRETER not in spec.needs
        if not makes_passes or spec.name not in plan.checks or (base.beyond_oracle and not spec.beyond_oracle):
            continue
        for name in plan.asked(spec.name):
            try:
                if spec.applies(subject, case):
                    with nothing_compared():
                        spec.run(base, (name,))
            except Exception:  # what compares outputs that were not computed may fail anywhere
                continue
    return ""

"""The check `config`: whatever launch parameters a case is run with, the outputs are within the bounds of that launch's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.accuracy import first_failure
from flashverify.checks.passes.derived_problems import launches, relaunched
from flashverify.checks.passes.execution import execute
from flashverify.checks.spec import CheckSpec, ErrorClass, Need, Question, Slot
from flashverify.judge.verdict import Status, Verdict

if TYPE_CHECKING:
    from flashverify.checks.passes.base_pass import BasePass
    from flashverify.checks.passes.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["SPEC", "check_config", "spread"]

Launch = tuple[tuple[str, int], ...]


def spread(found: list[Launch], most: int, turn: int) -> list[Launch]:
    """At most `most` of the launches, evenly spread over the list; where they are fewer, `turn` moves the places."""
    if len(found) <= most:
        return found
    step = len(found) / most
    return [found[int(turn % max(1, int(step)) + n * step) % len(found)] for n in range(most)]


def check_config(subject: Subject, base: Execution, most: int) -> list[Verdict] | None:
    """Runs the case under other launch parameters and judges each pass by accuracy, in the form of its launch.

    Args:
        subject: the kernel under test.
        base: the pass under the case's own launch.
        most: launches to run.

    Returns:
        For every launch that is wrong where another one is right a failing verdict that names both; None where there is no choice.
    """
    case = base.problem.case
    found = [launch for launch in launches(subject, case) if launch != case.launch]
    if not found:
        return None
    others = spread(found, most, case.values.seed)
    wrong, right = [], ""
    for launch in (case.launch, *others):
        execution = base if launch == case.launch else execute(subject, relaunched(base.problem, launch))
        failing = first_failure(subject, execution)
        if failing is None:
            right = right or _text(launch)
        else:
            wrong.append((launch, failing))
    return [_disagreement(launch, failing, right) for launch, failing in wrong if right]


def _disagreement(launch: Launch, failing: Verdict, right: str) -> Verdict:
    return Verdict(
        check="config",
        status=Status.FAIL,
        output=failing.output,
        error="config",
        mode=failing.mode,
        ratio=failing.ratio,
        index=failing.index,
        message=f"launch {_text(launch)} is wrong where {right} is right: {failing.message}",
    )


def _text(launch: Launch) -> str:
    return ",".join(f"{name}={value}" for name, value in launch) or "of the subject's own choice"


def _run(base: BasePass, _: tuple[str, ...]) -> list[Verdict] | None:
    return check_config(base.subject, base.execution, base.launches)


SPEC = CheckSpec(
    name="config",
    question="Is every launch configuration within its bounds?",
    needs=(Need.PASSES, Need.ORACLE),
    questions=(Question(name="launches", slot=Slot.NONE, passes=16),),
    errors=(
        ErrorClass("config", "{output} is wrong under some launch", "one launch is wrong where another one is right"),
    ),
    run=_run,
    of_right_passes=True,
)

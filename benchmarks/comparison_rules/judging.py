"""One execution of a kernel, put to every rule that still has something to say."""

from __future__ import annotations

import dataclasses
import math
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from comparison_rules.references import References
from comparison_rules.rules import FOREIGN
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.accuracy import check_accuracy, shape_failures
from flashverify.checks.left_open import undefined_elements
from flashverify.checks.passes.execution import execute
from flashverify.errors import FlashverifyError
from flashverify.judge.verdict import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.checks.passes.execution import Execution
    from flashverify.subjects.interface import Subject

__all__ = ["BOUNDS", "CRASH", "FULL", "RULES", "reject"]

BOUNDS, FULL = "bounds", "flashverify"
RULES = (*FOREIGN, BOUNDS, FULL)
"""Others' rules, our bounds alone (checks accuracy and nonfinite), and all our checks as in fuzzing."""
CRASH = "crash"

_LIMIT = 60.0
"""Seconds that a kernel may take on a case; an interpreted loop that does not end is a loop of Python."""


def reject(subject: Subject, case: Case, wanted: Iterable[str]) -> dict[str, bool | None]:
    """Which of the `wanted` rules reject the subject's outputs on `case`; None: it has no opinion.

    An exception, a kernel that does not end, or outputs of the wrong shape or dtype are seen by anyone: every rule rejects,
    and `CRASH` is set.
    """
    wanted = tuple(wanted)
    problem, _ = materialize(case, "cpu")
    try:
        with _at_most(_LIMIT):
            execution = execute(subject, problem)
    except Exception:
        return dict.fromkeys((*wanted, CRASH), True)
    if shape_failures(execution):
        return dict.fromkeys((*wanted, CRASH), True)
    found: dict[str, bool | None] = {}
    outputs = _declared(subject, execution)
    references = References(problem, cached=case.storage.page_size is not None or "decode" in subject.name)
    for name in wanted:
        if name in FOREIGN:
            found[name] = FOREIGN[name](outputs, references)
    if BOUNDS in wanted or FULL in wanted:
        found |= {name: answer for name, answer in _ours(subject, case, execution, wanted).items() if name in wanted}
    return found


def _ours(subject: Subject, case: Case, execution: Execution, wanted: tuple[str, ...]) -> dict[str, bool | None]:
    """The bounds' answer, and that of all checks, which contain the bounds."""
    try:
        comparisons = check_accuracy(subject, execution).comparisons
    except (FlashverifyError, AssertionError):  # an oracle that cannot be trusted here: no verdict
        return {BOUNDS: None, FULL: None}
    if any(v.status is Status.FAIL for comparison in comparisons for v in comparison.verdicts):
        return {BOUNDS: True, FULL: True}
    if FULL not in wanted:
        return {BOUNDS: False}
    plan = Plan.fuzz(case)
    rest = tuple(check for check in plan.checks if check not in ("accuracy", "nonfinite"))
    with _at_most(4 * _LIMIT):
        result = judge_case(subject, case, dataclasses.replace(plan, checks=rest))
    errors = any(v.status is Status.ERROR for v in result.verdicts)
    return {BOUNDS: False, FULL: True if result.failures else None if errors else False}


def _declared(subject: Subject, execution: Execution) -> dict[str, torch.Tensor]:
    """The outputs that others compare; what an empty row holds (O = 0, LSE = -inf) where the contract says nothing."""
    undefined = undefined_elements(execution.problem, subject.contract)
    return {
        name: tensor.masked_fill(undefined[name], -math.inf if name == "lse" else 0.0) if name in undefined else tensor
        for name, tensor in execution.outputs.items()
        if name != "delta"
    }


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError inside after `seconds`; for the main thread."""

    def overdue(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds:g} s")

    handler, (delay, interval) = signal.signal(signal.SIGALRM, overdue), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, delay, interval)
        signal.signal(signal.SIGALRM, handler)

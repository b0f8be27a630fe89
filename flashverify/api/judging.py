"""`judge_case` and `count_masks`: one case, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.api.interpreting import interpreted_for, unlaunched
from flashverify.case.case import Case
from flashverify.case.text import parse_case
from flashverify.errors import NoVerdictError, UnsupportedCaseError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.judge.verdict import CaseResult
    from flashverify.subjects.interface import Subject
    from flashverify.xray.record import Record

__all__ = ["count_masks", "judge_case"]


def judge_case(subject: Subject | str, case: Case | str, *, checks: Sequence[str] | None = None) -> CaseResult:
    """Every verdict about a subject on one case, the same as those of `flashverify replay`.

        result = judge_case("bundled", "fv1 seq_q=17 seq_k=33 causal=bottom-right", checks=("accuracy", "padding"))
        assert not result.failures

    Kernels run in this process. On the CPU Triton must interpret: TRITON_INTERPRET=1 is set before triton is first imported. The corrected
    interpreter is opened for the call unless `corrected_interpreter` is open already; opening it once around many calls is faster.

    Args:
        subject: the kernel under test, or what `--subject` takes: a registered name, `module:name` or `file.py:name`, whose code is run.
        case: the problem, or its text form.
        checks: names of the checks to make, each in full; by default all of them, as `flashverify run` makes them. `exception` stands for
            all of them too: every pass may raise.

    Returns:
        The verdicts: `result.failures` are the failing ones, `result.unsupported` is why the subject does not accept the case.

    Raises:
        CaseTextError: the text is no case.
        SubjectLoadError: there is no such subject, or its module cannot be imported.
        NoVerdictError: the harness failed, and found nothing wrong with the subject before.
        UsageError: a check is unknown, the subject needs a GPU, or it launches Triton kernels on the CPU that this process compiles.
    """
    from flashverify.checks import CHECKS, Plan
    from flashverify.checks import judge_case as judge
    from flashverify.judge.verdict import Status

    kernel, problem = _loaded(subject), _parsed(case)
    if checks is None:
        plan = Plan.run()
    else:
        if isinstance(checks, str) or not checks:
            raise UsageError(f"checks={checks!r} is not accepted: a sequence of names, or None for all of them")
        for name in checks:
            if name not in (*CHECKS, "exception"):
                raise UsageError(f"checks: {name!r} is not accepted: one of {', '.join((*CHECKS, 'exception'))}")
        plan = Plan(checks=CHECKS if "exception" in checks else tuple(dict.fromkeys(checks)))
    with interpreted_for(kernel):
        result = judge(kernel, problem, plan)
    for verdict in result.verdicts:
        if (verdict.check, verdict.error) == ("harness", "exception") and not result.failures:
            raise NoVerdictError(f"{verdict.message}\n{verdict.traceback}")
        if verdict.status is Status.FAIL and verdict.check == "exception":
            reason = unlaunched(kernel, verdict.message)
            if reason is not None:
                raise UsageError(reason)
    return result


def count_masks(subject: Subject | str, case: Case | str | None = None) -> Record:
    """Which key entered which row how often, counted exactly, against the declared mask: `flashverify xray` without its picture.

        found = count_masks("bundled", "fv1 seq_q=40 seq_k=70 causal=bottom-right window=8,0")
        assert not found.differences

    Kernels run in this process, as for `judge_case`.

    Args:
        subject: the kernel under test, or what `--subject` takes.
        case: the problem, or its text form; its values are not used. By default causal, 256 x 256, D = 64.

    Returns:
        The record: `differences` (each with output, error, count, index and a sentence; empty where every mask in effect is the declared
        one), `readings` (how much of O's, dV's, dQ's and dK's mask was read), `lse_rows`, `heads`, `notes`, `launches`, `seconds`.

    Raises:
        CaseTextError: the text is no case.
        SubjectLoadError: there is no such subject, or its module cannot be imported.
        UnsupportedCaseError: the subject does not accept the case.
        UsageError: nothing can be counted, as under dropout; or as in `judge_case`.
        Exception: whatever the subject raises.
    """
    from flashverify.case.memory.materialize import materialize
    from flashverify.xray.cases import default_case
    from flashverify.xray.difference import record_of
    from flashverify.xray.measure import measure

    kernel = _loaded(subject)
    with interpreted_for(kernel):
        problem_case = default_case(kernel.supports) if case is None else _parsed(case)
        reason = kernel.supports.refusal(problem_case)
        if reason is not None:
            raise UnsupportedCaseError(f"case={str(problem_case)!r} is not accepted by {kernel.name}: {reason}")
        problem, arena = materialize(problem_case, kernel.device())
        try:
            found = record_of(measure(kernel, problem))
        except Exception as error:
            if (advice := unlaunched(kernel, str(error))) is not None:
                raise UsageError(advice) from error
            raise
        del arena  # the memory of the problem, alive until here
    return found


def _loaded(subject: Subject | str) -> Subject:
    from flashverify.subjects import Subject, load_subject

    if isinstance(subject, str):
        return load_subject(subject)
    if not isinstance(subject, Subject):
        raise UsageError(
            f"subject={subject!r:.200} is not accepted: a name, or a subject; decorate the function with @flashverify.subject"
        )
    return subject


def _parsed(case: Case | str) -> Case:
    if isinstance(case, str):
        return parse_case(case)
    if not isinstance(case, Case):
        raise UsageError(f"case={case!r:.200} is not accepted: a Case or its text form")
    return case

"""From a first sight to a finding: shrink, verify in fresh processes, say what is wrong."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.plan_name import PROCESS_CHECKS, PlanName
from flashverify.campaign.protocol import Improved, Judge, Minimal, Minimise, Started
from flashverify.campaign.shrink.shrinker import shrink
from flashverify.campaign.supervisor.probe import Probe
from flashverify.case.text import format_case, parse_case
from flashverify.errors import NoVerdictError
from flashverify.judge.record import Confirmation

if TYPE_CHECKING:
    from flashverify.campaign.worker.main import Session
    from flashverify.case.case import Case
    from flashverify.judge.record import Diagnosis
    from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = ["minimise"]

_DIAGNOSIS_LIMIT = 20.0
"""Seconds that a diagnosis may take."""


def minimise(session: Session, task: Minimise) -> None:
    """Emit `Improved` for each smaller failing case and `Minimal` at the end.

    At the limit of the task verifying and diagnosing are left as they are.
    """
    begun = time.monotonic()
    end = math.inf if task.limit is None else begun + task.limit
    kills = task.key.check in PROCESS_CHECKS
    plan = str(PlanName.of_check(task.key.check))
    # What is verified there is not what found it: interpreted programs run one after the other, not in lockstep.
    plain = msgspec.structs.replace(session.setup, plain=True)
    with Probe(plain, alive=lambda: session.emit(Started())) as probe:

        def judge(case: Case) -> CaseResult:
            if kills:
                return probe.judge(Judge(task.subject, format_case(case), plan), deadline=end).result
            return session.judge(task.subject, case, plan)

        case, verdict = parse_case(task.case), task.verdict
        deadline = begun + task.seconds
        skip = set(task.quarantine)
        steps = shrink(case)
        candidate = next(steps, None)
        while candidate is not None and time.monotonic() < deadline:
            try:
                found = None if format_case(candidate) in skip else _failure(judge(candidate), candidate, task.key)
            except NoVerdictError:
                if time.monotonic() < end:
                    raise
                break
            if found is not None:
                case, verdict = candidate, found
                session.emit(Improved(task.key, format_case(case), verdict))
            try:
                candidate = steps.send(found is not None)
            except StopIteration:
                candidate = None

        text, complete = format_case(case), candidate is None
        verdict, confirmation = _verify(probe, task, text, plan, verdict, end)
        if task.repeats and not confirmation.failed and text != task.first:
            # Smaller, but only inside this process: the first sight is the better witness if it stands alone.
            again, second = _verify(probe, task, task.first, plan, verdict, end)
            if second.failed:
                text, verdict, confirmation = task.first, again, second
    diagnosis = _diagnosis(session, task, text, plan, end) if confirmation.failed else None
    session.emit(Minimal(task.key, text, verdict, confirmation, diagnosis, complete))


def _verify(
    probe: Probe, task: Minimise, text: str, plan: str, verdict: Verdict, end: float
) -> tuple[Verdict, Confirmation]:
    """Judge `task.repeats` times, beginning in a process that judged nothing before; then ask the second oracle."""
    case = parse_case(text)
    confirmation, failed, made = Confirmation(), 0, 0
    probe.reset()
    for _ in range(task.repeats):
        try:
            found = _failure(probe.judge(Judge(task.subject, text, plan), deadline=end).result, case, task.key)
        except NoVerdictError:
            if time.monotonic() < end:
                raise
            break
        made += 1
        if found is not None:
            verdict = verdict if failed else found
            failed += 1
    if failed and task.key.check not in PROCESS_CHECKS and time.monotonic() < end:
        try:
            confirmation = probe.judge(Judge(task.subject, text, plan, confirm=task.key), deadline=end).confirmation
        except NoVerdictError:  # the second oracle took too long; the failure stands without it
            confirmation = Confirmation()
    return verdict, msgspec.structs.replace(confirmation, repeats=made, failed=failed)


def _diagnosis(session: Session, task: Minimise, text: str, plan: str, end: float) -> Diagnosis | None:
    """What explains the failure; None where that took too long, or where there are no outputs to explain.

    It rests on some ten more runs of the subject, so interpreted programs go in lockstep.
    """
    if task.key.check in PROCESS_CHECKS or time.monotonic() >= end:
        return None
    setup = msgspec.structs.replace(session.setup, case_limit=min(session.setup.case_limit, _DIAGNOSIS_LIMIT))
    with Probe(setup, alive=lambda: session.emit(Started())) as probe:
        try:
            request = Judge(task.subject, text, plan, diagnose=task.key, first=task.first)
            return probe.judge(request, deadline=end).diagnosis
        except NoVerdictError:
            return None


def _failure(result: CaseResult, case: Case, key: Key) -> Verdict | None:
    return next((v for v in result.failures if v.key(result.subject, case.dtype) == key), None)

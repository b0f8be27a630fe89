"""From a first sight to a finding: shrink, verify in fresh processes, say what is wrong."""

from __future__ import annotations

import math
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.diagnoses import about_values, says_little
from flashverify.campaign.causes.hidden import bucket_of
from flashverify.campaign.causes.sighting import may_follow, sightings_of
from flashverify.campaign.causes.symptoms import symptom
from flashverify.campaign.plan_name import PROCESS_CHECKS, PlanName
from flashverify.campaign.protocol import Improved, Judge, Minimal, Minimise, Started
from flashverify.campaign.shrink.shrinker import shrink
from flashverify.campaign.supervisor.probe import Probe
from flashverify.campaign.worker.fresh import Fresh, failure
from flashverify.campaign.worker.mend import Mender
from flashverify.campaign.worker.overflow import with_plain_values
from flashverify.case.text import format_case, parse_case
from flashverify.diagnosis.state.wording import tells_of_state
from flashverify.errors import NoVerdictError
from flashverify.judge.record import Confirmation, Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult, Key, Verdict

__all__ = ["minimise"]

_WORTH = 3.0
"""Seconds of a finding with which repairs are looked for at least."""
_LASTING = 25.0
"""Seconds that the search for them takes where nothing else says what is wrong; it goes on beside what the worker does then."""
_SAYING = 0.8
"""Share of the time that is left for a diagnosis: it may end a little late, and the verification follows."""
_ALONE = "In a process that computed nothing before, the case does not fail in this way: it depends on earlier calls, on what lay in memory, or on chance."
_HERE = "In the process that found it, after other calls, it computed so: {}"


def minimise(session: Session, task: Minimise) -> None:
    """Emit `Improved` for each smaller failing case and `Minimal` at the end.

    The diagnosis comes before the verification, which waits for fresh processes, and is told at once. At the limit of the task both are
    left as they are.
    """
    begun = time.monotonic()
    end = math.inf if task.limit is None else begun + task.limit
    kills = task.key.check in PROCESS_CHECKS
    plan = str(PlanName.of_check(task.key.check))
    # What is verified there is not what found it: interpreted programs run one after the other, not in lockstep.
    plain = msgspec.structs.replace(session.setup, plain=True)
    with Probe(plain, alive=lambda: session.emit(Started())) as probe:
        if task.repeats:
            probe.start()  # it imports torch while cases are judged here

        def judge(case: Case) -> CaseResult:
            if kills:
                return probe.judge(Judge(task.subject, format_case(case), plan), deadline=end).result
            return session.judge(task.subject, case, plan)

        case, verdict, shows = parse_case(task.case), task.verdict, None
        deadline = begun + task.seconds
        skip = set(task.quarantine)
        steps, known, accepted = shrink(case), None, 0
        candidate = next(steps, None)
        while known is None and candidate is not None and time.monotonic() < deadline:
            try:
                result = None if format_case(candidate) in skip else judge(candidate)
                found = None if result is None else _own_failure(session, task, candidate, result)
            except NoVerdictError:
                if time.monotonic() < end:
                    raise
                break
            if found is not None and result is not None:
                case, verdict, shows = candidate, found, _buckets(result, candidate)
                session.emit(Improved(task.key, format_case(case), verdict))
                accepted += 1
                if accepted.bit_count() == 1:  # after the first smaller case, the second, the fourth and so on
                    known = _known(session, task, case, verdict)
            try:
                candidate = steps.send(found is not None)
            except StopIteration:
                candidate = None

        text, complete = format_case(case), candidate is None
        known = known or _known(session, task, case, verdict)
        if known is None and complete and not kills and time.monotonic() < end:
            known, others = _with_plain_values(session, task, case)
            shows = shows if not others else tuple(sorted({*(shows or ()), *others}))
        if known is not None or set(map(symptom, shows or ())) & set(map(symptom, task.beside)):
            session.emit(Minimal(task.key, text, verdict, Confirmation(), known, complete, shows))
            return
        fresh, goes_on = Fresh(probe, task, plan, end), False
        mender = _mender(session, task, text, end)
        with ExitStack() as own:
            if mender is not None:
                own.enter_context(mender)
            diagnosis = _told(session, task, text, verdict, end, fresh)
            verdict, confirmation = fresh.verified(text, verdict)
            if task.repeats and confirmation.repeats and not confirmation.failed and text != task.first:
                # Smaller, but only inside this process: the first sight is the better witness if it stands alone.
                again, second = fresh.verified(task.first, verdict)
                if second.failed:
                    text, verdict, confirmation, shows = task.first, again, second, None
                    diagnosis = _told(session, task, text, verdict, end, fresh)
            elif mender is not None:
                goes_on = not mender.look() and not mender.answers and says_little(diagnosis)
                diagnosis = _with_repairs(mender, diagnosis)
                if goes_on:
                    own.pop_all()
    if confirmation.repeats and not confirmation.failed:
        diagnosis = _right_alone(session, task, text, verdict, diagnosis, end)
    session.emit(Minimal(task.key, text, verdict, confirmation, diagnosis, complete, shows))
    if goes_on and mender is not None:
        session.keep_aside(task.key, mender)


def _mender(session: Session, task: Minimise, text: str, end: float) -> Mender | None:
    """What looks for repairs beside the diagnosis; None where there is nothing to repair, where kernels are compiled, or without a limit."""
    left = _SAYING * (end - time.monotonic())
    if not about_values(task.key) or task.undiagnosed or not _WORTH <= left < math.inf or session.setup.device != "cpu":
        return None
    try:
        return Mender(session, task.subject, parse_case(text), parse_case(task.first), max(left, _LASTING))
    except OSError as error:  # the finding stands without a repair
        print(f"repair failed: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _with_repairs(mender: Mender, diagnosis: Diagnosis | None) -> Diagnosis | None:
    """The diagnosis with the repairs that are known."""
    found = mender.answers
    if not found and not mender.failure:
        return diagnosis
    return msgspec.structs.replace(diagnosis or Diagnosis(), repairs=found, unmended=mender.failure)


def _told(session: Session, task: Minimise, text: str, verdict: Verdict, end: float, fresh: Fresh) -> Diagnosis | None:
    """What explains the failure, told at once: the verification that follows may not end in time."""

    def afresh() -> bool | None:
        """Where nobody could ask, another finding of the subject that is of state says what a fresh process would."""
        fails = fresh.fails(text)
        return False if fails is None and any(map(tells_of_state, task.known)) else fails

    found = _diagnosis(session, task, text, verdict, end, afresh)
    if found is not None:
        session.emit(Improved(task.key, text, verdict, found))
    return found


def _right_alone(
    session: Session, task: Minimise, text: str, verdict: Verdict, found: Diagnosis | None, end: float
) -> Diagnosis | None:
    """What is said of a failure that no fresh process shows: what is kept between calls, where that has a name, and that it needs more than the case.

    What else was found speaks of values that depend on what was called before: it is said as what this process computed.
    """
    if task.key.check in PROCESS_CHECKS:
        return None
    seen = Diagnosis()
    if found is None or not tells_of_state(found):
        seen = found or seen
        later = msgspec.structs.replace(verdict, check="reuse")
        found = _diagnosis(session, task, text, later, end)
    if found is not None and tells_of_state(found):
        return msgspec.structs.replace(found, sentence=f"{found.sentence} {_ALONE}")
    return Diagnosis(sentence=f"{_ALONE} {_HERE.format(seen.sentence)}" if seen.name else _ALONE, place=seen.place)


def _diagnosis(
    session: Session,
    task: Minimise,
    text: str,
    verdict: Verdict,
    end: float,
    afresh: Callable[[], bool | None] = lambda: None,
) -> Diagnosis | None:
    """What explains the failure; None where there are no outputs to explain, where that took too long, or where a worker died over it.

    It rests on tens of runs of the subject, so interpreted programs go in lockstep: in this process.
    """
    left = _SAYING * (end - time.monotonic())
    if task.key.check in PROCESS_CHECKS or task.undiagnosed or left <= 0:
        return None
    session.emit(Started())
    try:
        first = parse_case(task.first)
        return session.toolkit.diagnose(
            session.subject(task.subject), parse_case(text), verdict, first=first, seconds=left, afresh=afresh
        )
    except Exception as error:  # the finding stands without words
        print(f"diagnose failed: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _known(session: Session, task: Minimise, case: Case, verdict: Verdict) -> Diagnosis | None:
    """The diagnosis of another finding that accounts for the minimal case too, though it had no say on the case as it was seen first."""
    if task.key.cause or not about_values(task.key):
        return None
    session.emit(Started())
    subject = session.subject(task.subject)
    try:
        return next((d for d in task.known if session.toolkit.attributed(subject, case, verdict, d)), None)
    except Exception as error:  # it stays a finding of its own
        print(f"attribution failed: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _with_plain_values(session: Session, task: Minimise, case: Case) -> tuple[Diagnosis | None, tuple[Key, ...]]:
    """The diagnosis of another finding that accounts for what the case shows with plain values, and the buckets that it shows then."""
    session.emit(Started())
    subject = session.subject(task.subject)
    try:
        found = with_plain_values(
            lambda each, plan: session.judge(task.subject, each, plan),
            lambda each: session.toolkit.refusal(subject, each) is None,
            case,
            task.key,
        )
        if found is None:
            return None, ()
        plain, seen = found
        told = (d for d in task.known if session.toolkit.attributed(subject, plain, seen[0].verdict, d))
        return next(told, None), tuple(sighting.key for sighting in seen)
    except Exception as error:  # it stays a finding of its own
        print(f"attribution failed: {type(error).__name__}: {error}", file=sys.stderr)
        return None, ()


def _buckets(result: CaseResult, case: Case) -> tuple[Key, ...]:
    return tuple(
        sorted({v.key(result.subject, case.dtype) for v in result.failures if result.case_of(v) == result.case})
    )


def _own_failure(session: Session, task: Minimise, case: Case, result: CaseResult) -> Verdict | None:
    """The failure, where no cause that is known accounts for it.

    What is outside its bound is not made one where only the strict prediction fails: rounding alone may break that.
    """
    found = failure(result, case, task.key)
    if found is not None and found.mode == "strict" and task.verdict.mode != "strict":
        return None
    if task.own and (seen := sightings_of(result).get(bucket_of(task.key))) is not None and may_follow(seen):
        return None
    if found is None or {symptom(v) for v in result.failures} & set(map(symptom, task.apart)):
        return None
    subject = session.subject(task.subject)
    known = task.known if task.key.cause else ()
    return None if any(session.toolkit.attributed(subject, case, found, diagnosis) for diagnosis in known) else found

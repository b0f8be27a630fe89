"""Whether failures are still there with the repair of a finding in place."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from flashverify.campaign.causes.diagnoses import is_mended
from flashverify.campaign.plan_name import PROCESS_CHECKS, PlanName
from flashverify.campaign.worker.confined import Confined
from flashverify.case.text import parse_case
from flashverify.judge.verdict import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.campaign.worker.session import Session
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import CaseResult

__all__ = ["Asked", "fails_with_repair"]


class Asked(NamedTuple):
    """A failure of a case by one check."""

    case: str
    check: str
    output: str


def fails_with_repair(
    session: Session, cause: FindingRecord, asked: Sequence[Asked], seconds: float
) -> list[bool | None]:
    """Whether each failure is still there with the first repair of a finding in place.

    Args:
        session: of the worker.
        cause: the finding; None is the answer to all where it has no such repair.
        asked: the failures.
        seconds: until no answer is waited for any more.

    Returns:
        For each True where the same check still refuses the same output, False where the whole check passes, None where neither is so, or
        where the failure is not there without the repair either.
    """
    answers: list[bool | None] = [None] * len(asked)
    if not is_mended(cause):
        return answers
    session.subject(cause.subject_spec)  # loaded before the child begins
    try:
        with Confined(tuple[int, bool], partial(_answers, session, cause, asked), session.emit, seconds) as child:
            for number, fails in child.found(seconds):
                answers[number] = fails
            failure = child.failure
    except OSError as error:
        failure = str(error)
    if failure:
        print(f"judging with a repair failed: {failure}", file=sys.stderr)
    return answers


def _answers(session: Session, cause: FindingRecord, asked: Sequence[Asked]) -> Iterator[tuple[int, bool]]:
    assert cause.diagnosis is not None
    failing = [n for n, each in enumerate(asked) if each.check not in PROCESS_CHECKS and _fails(session, cause, each)]
    case, repair = parse_case(cause.case), cause.diagnosis.repairs[0]
    with session.toolkit.with_repair(session.subject(cause.subject_spec), case, repair) as there:
        for number in failing if there else ():
            fails = _fails(session, cause, asked[number])
            if fails is not None:
                yield number, fails


def _fails(session: Session, cause: FindingRecord, asked: Asked) -> bool | None:
    """By that check alone; None where it neither passes nor refuses that output."""
    subject, plan = session.subject(cause.subject_spec), PlanName.of_check(asked.check)
    result = session.toolkit.judge(subject, parse_case(asked.case), str(plan))
    if any((each.check, each.output) == (asked.check, asked.output) for each in result.failures):
        return True
    return False if _passes(result, asked.check) else None


def _passes(result: CaseResult, check: str) -> bool:
    """Whether a check passes, and nothing else fails or breaks off."""
    passed = {verdict.check for verdict in result.verdicts if verdict.status is Status.PASS}
    refused = any(verdict.status in (Status.FAIL, Status.ERROR) for verdict in result.verdicts)
    return not refused and (bool(passed) if check == "exception" else check in passed)

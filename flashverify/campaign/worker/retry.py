"""Which findings the repair of another one makes right: they have its cause."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import Retried, Started
from flashverify.campaign.worker.confined import Confined
from flashverify.case.text import parse_case
from flashverify.judge.verdict import Key, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.protocol import Retry
    from flashverify.campaign.worker.session import Session
    from flashverify.judge.record import FindingRecord
    from flashverify.judge.verdict import CaseResult

__all__ = ["retry"]


def retry(session: Session, task: Retry) -> None:
    """Emit `Retried`: what was found until the limit."""
    session.emit(Started())
    session.subject(task.cause.subject_spec)  # loaded before the child begins
    found: tuple[Key, ...] = ()
    try:
        with Confined(Key, partial(_made_right, session, task), session.emit, task.limit) as child:
            found, failure = child.found(task.limit), child.failure
    except OSError as error:
        failure = str(error)
    if failure:
        print(f"retrying failed: {failure}", file=sys.stderr)
    session.emit(Retried(task.cause.key, found))


def _made_right(session: Session, task: Retry) -> Iterator[Key]:
    """The findings that fail in this process as they did before, and are right with the repair."""
    spec, cause = task.cause.subject_spec, task.cause
    assert cause.diagnosis is not None
    failing = [each for each in task.found if _key(each) in _failures(_judged(session, spec, each))]
    case, repair = parse_case(cause.case), cause.diagnosis.repairs[0]
    with session.toolkit.with_repair(session.subject(spec), case, repair) as there:
        for each in failing if there else ():
            if _is_right(_judged(session, spec, each), each):
                yield each.key


def _judged(session: Session, spec: str, finding: FindingRecord) -> CaseResult:
    """By the check that failed alone."""
    plan = PlanName.of_check(finding.key.check)
    return session.toolkit.judge(session.subject(spec), parse_case(finding.case), str(plan))


def _key(finding: FindingRecord) -> tuple[str, str]:
    return finding.key.check, finding.key.output


def _is_right(result: CaseResult, finding: FindingRecord) -> bool:
    """Whether the check that failed passes, and nothing else fails or breaks off."""
    said = {verdict.status for verdict in result.verdicts}
    asked = {v.check for v in result.verdicts if v.status is Status.PASS}
    passed = bool(asked) if finding.key.check == "exception" else finding.key.check in asked
    return passed and not said & {Status.FAIL, Status.ERROR}


def _failures(result: CaseResult) -> set[tuple[str, str]]:
    return {(each.check, each.output) for each in result.failures}

"""What tells two findings apart: a name that does not account for the other one, and cases without what the other one needs."""

from __future__ import annotations

import math
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.diagnoses import named
from flashverify.campaign.causes.independence import LOW, holds, needed
from flashverify.campaign.causes.sighting import may_follow, sightings_of
from flashverify.campaign.causes.symptoms import VALUES, symptom
from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import Separated, Started
from flashverify.campaign.worker.neighbours import simpler
from flashverify.case.changes import change
from flashverify.case.text import format_case, parse_case
from flashverify.outputs import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.causes.sighting import Sighting
    from flashverify.campaign.protocol import Separate
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.record import Diagnosis, FindingRecord

__all__ = ["separate"]

_TRIED = 6
"""Cases that are judged without what the other finding needs."""


def separate(session: Session, task: Separate) -> None:
    """Emit `Separated`, what was found until the limit."""
    end = math.inf if task.limit is None else time.monotonic() + task.limit
    accounts, wider = None, False
    alone = ["", ""]
    try:
        accounts = _accounts(session, task)
        if not accounts and task.only_name and _widely(session, task.cause, task.found):
            accounts = wider = True
        for number, (one, other) in enumerate(((task.found, task.cause), (task.cause, task.found))):
            alone[number] = "" if accounts or task.only_name else _seen_without(session, one, other, end)
    except Exception as error:  # what cannot be told stays as it is
        print(f"separation failed: {type(error).__name__}: {error}", file=sys.stderr)
    keys = (task.cause.key, task.found.key)
    session.emit(Separated(*keys, accounts, alone[0], alone[1], only_name=task.only_name, wider=wider))


def _accounts(session: Session, task: Separate) -> bool | None:
    """Whether the one diagnosis that has a name accounts for the minimal case of the other finding; None where it has no say."""
    if named(task.cause) == named(task.found):
        return None
    one, other = (task.cause, task.found) if named(task.cause) else (task.found, task.cause)
    if one.diagnosis is None or other.key.check not in VALUES:
        return None
    return _attributed(session, other, other.case, one.diagnosis)


def _widely(session: Session, lead: FindingRecord, found: FindingRecord) -> bool:
    """Whether a name accounts for a finding about an output of the same kernel where its conditions do not hold: a condition of some cases was taken for one of the defect.

    One name of one kernel is one mistake; it has to give the values of the minimal case and of the one that showed the finding first.
    """
    together = any({found.key.output, lead.key.output} <= set(kernel) for kernel in KERNELS)
    if lead.diagnosis is None or not lead.diagnosis.conditions or not together:
        return False
    anywhere = msgspec.structs.replace(lead.diagnosis, conditions=())
    return all(_attributed(session, found, text, anywhere) for text in dict.fromkeys((found.case, found.first)))


def _attributed(session: Session, found: FindingRecord, text: str, diagnosis: Diagnosis) -> bool | None:
    """Whether a diagnosis accounts for a finding on a case; None where it has no say, or where that does not show it."""
    case = parse_case(text)
    if (seen := _shown(session, found, case)) is None:
        return None
    session.emit(Started())
    return session.toolkit.attributed(session.subject(found.subject_spec), case, seen.verdict, diagnosis)


def _seen_without(session: Session, one: FindingRecord, other: FindingRecord, end: float) -> str:
    """A case that shows a finding and lacks something that the case of the other one has; empty where none was found."""
    for case in islice(_lacking(session, one, other), _TRIED):
        if time.monotonic() > end:
            break
        if (seen := _shown(session, one, case)) is not None and not may_follow(seen):
            return format_case(case)
    return ""


def _lacking(session: Session, one: FindingRecord, other: FindingRecord) -> Iterator[Case]:
    """The case of a finding in fp32, and with a part less, where that lacks something that the case of the other one has."""
    case, needs = parse_case(one.case), needed(other)
    subject = session.subject(one.subject_spec)
    if not holds(case, needs):
        return
    precise = change(case, dtype="fp32", precision="ieee") if LOW in needs else None
    for changed in (*([precise] if precise is not None else []), *simpler(case)):
        if not holds(changed, needs) and session.toolkit.refusal(subject, changed) is None:
            yield changed


def _shown(session: Session, finding: FindingRecord, case: Case) -> Sighting | None:
    """The failure of a finding, in whatever dtype, where a case shows it."""
    result = session.judge(finding.subject_spec, case, str(PlanName.of_check(finding.key.check)))
    return next((s for key, s in sightings_of(result).items() if symptom(key) == symptom(finding.key)), None)

"""What each kind of task is carried out by; a module is loaded when its first task comes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import (
    Attribute,
    Batch,
    CaseList,
    CasesListed,
    Chunk,
    Compare,
    Judge,
    Judged,
    Mend,
    Minimise,
    Prepare,
    Profile,
    Reconsider,
    Retry,
    Separate,
    Started,
    Task,
)
from flashverify.case.text import parse_case
from flashverify.judge.record import Confirmation

if TYPE_CHECKING:
    from flashverify.campaign.worker.session import Session

__all__ = ["carry_out"]

_MODULES: dict[type, tuple[str, str]] = {
    Batch: ("search", "search"),
    Prepare: ("ahead", "prepare"),
    Minimise: ("minimise", "minimise"),
    Attribute: ("attribute", "attribute"),
    Compare: ("compare", "compare"),
    Separate: ("separate", "separate"),
    Profile: ("profile", "profile"),
    Reconsider: ("reconsider", "reconsider"),
    Mend: ("mend", "mend"),
    Retry: ("retry", "retry"),
}
"""By kind of task a module of this package, and its function of a session and a task."""


def carry_out(session: Session, task: Task) -> None:
    """Do what a task says, and emit what comes of it."""
    if isinstance(task, Chunk):
        _judge_chunk(session, task)
    elif isinstance(task, CaseList):
        _list(session, task)
    elif isinstance(task, Judge):
        _judge_one(session, task)
    else:
        module, function = _MODULES[type(task)]
        getattr(import_module(f"flashverify.campaign.worker.{module}"), function)(session, task)


def _judge_chunk(session: Session, task: Chunk) -> None:
    from flashverify.campaign.worker.traced import judge_listed

    for text in task.cases:
        if session.report(task.subject, judge_listed(session, task, parse_case(text))):
            break


def _list(session: Session, task: CaseList) -> None:
    from flashverify.campaign.worker.listing import listed

    session.emit(CasesListed(listed(session, task)))


def _judge_one(session: Session, task: Judge) -> None:
    case, first = parse_case(task.case), parse_case(task.first or task.case)
    subject, result = session.subject(task.subject), session.judge(task.subject, case, task.plan)
    confirmation, diagnosis = Confirmation(), None
    failing = {v.key(result.subject, case.dtype): v for v in reversed(result.failures)}
    if task.confirm is not None and task.confirm in failing:
        session.emit(Started())
        try:
            confirmation = session.toolkit.confirm(subject, case, failing[task.confirm])
        except Exception as error:  # the failure stands without the second oracle
            print(f"confirm failed: {type(error).__name__}: {error}", file=sys.stderr)
    if task.diagnose is not None and task.diagnose in failing:
        session.emit(Started())
        try:
            diagnosis = session.toolkit.diagnose(subject, case, failing[task.diagnose], first=first)
        except Exception as error:  # and without words for it
            print(f"diagnose failed: {type(error).__name__}: {error}", file=sys.stderr)
    session.emit(Judged(result, confirmation, diagnosis))

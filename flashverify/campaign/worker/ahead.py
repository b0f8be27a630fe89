"""Compiling ahead, in the workers: one process compiles what cases will launch, and others judge what is compiled."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flashverify.campaign.ahead import ahead_of
from flashverify.campaign.protocol import Prepared, PutOff
from flashverify.campaign.worker.search import draw
from flashverify.case.text import format_case, parse_case
from flashverify.launching.compilations import NotCompiled

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Prepare
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case
    from flashverify.judge.verdict import CaseResult

__all__ = ["judge_compiled", "prepare"]


def judge_compiled(session: Session, spec: str, case: Case) -> CaseResult | None:
    """Judges a case of a search, or puts it off where one of its kernels is not compiled, which gives None."""
    try:
        with ahead_of(session.toolkit).compiled_only():
            return session.judge(spec, case, "fuzz")
    except NotCompiled:
        session.clear()
        session.emit(PutOff(spec, format_case(case)))
        return None


def prepare(session: Session, task: Prepare) -> None:
    """Make every launch of the cases, which compiles their kernels. A case that the subject fails over counts as prepared: a worker judges it.

    For a subject that torch traces nothing is done: what another process traced is of no use to a worker.
    """
    toolkit, subject = ahead_of(session.toolkit), session.subject(task.subject)
    if toolkit.traced(subject):
        session.emit(Prepared(task.subject, task.cases, task.kind, traced=True))
        return
    usual = total = 0
    drawn = tuple(map(parse_case, task.cases))
    if task.kind >= 0:
        usual, total = toolkit.kinds(subject)
        if task.kind < total:
            drawn = draw(toolkit.of_kinds(subject, (task.kind,)), task.examples, task.seed)
    launched, compiled = session.launched(), toolkit.spent().compiled
    for case in drawn:
        session.announce(task.subject, format_case(case))
        if problem := toolkit.rehearse(subject, case):
            print(f"not rehearsed: {case}: {problem}", file=sys.stderr)
        session.clear()
    session.emit(
        Prepared(
            task.subject,
            tuple(map(format_case, drawn)),
            task.kind,
            launches=session.launched() - launched,
            compiled=toolkit.spent().compiled - compiled,
            usual=usual,
            total=total,
        )
    )

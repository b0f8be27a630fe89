"""A list of cases: the corpus, the fixed matrix, or drawn ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.text import format_case

if TYPE_CHECKING:
    from flashverify.campaign.protocol import CaseList
    from flashverify.campaign.worker.session import Session

__all__ = ["listed"]


def listed(session: Session, task: CaseList) -> tuple[str, ...]:
    """The cases that a task asks for, each once, as far as every subject accepts them.

    Raises:
        UsageError: nothing can be drawn.
    """
    subject = session.subject(task.subject)
    if task.examples:
        from flashverify.campaign.worker.search import draw_some

        drawn = draw_some(session, subject, task.examples, task.seed, task.profile)
    elif task.corpus:
        from flashverify.campaign.corpus import corpus_cases

        drawn = tuple(case for case in corpus_cases(session.device) if session.toolkit.refusal(subject, case) is None)
    else:
        drawn = session.toolkit.matrix(subject, session.device)
    others = [session.subject(spec) for spec in task.also]
    kept = (c for c in drawn if all(session.toolkit.refusal(other, c) is None for other in others))
    return tuple(dict.fromkeys(map(format_case, kept)))

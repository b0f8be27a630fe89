"""Which findings the repair of another one makes right: they have its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.protocol import Retried, Started
from flashverify.campaign.worker.repaired import Asked, fails_with_repair

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Retry
    from flashverify.campaign.worker.session import Session

__all__ = ["retry"]


def retry(session: Session, task: Retry) -> None:
    """Emit `Retried`: what was found until the limit."""
    session.emit(Started())
    asked = [Asked(each.case, each.key.check, each.key.output) for each in task.found]
    fails = fails_with_repair(session, task.cause, asked, task.limit)
    said = {
        kept: tuple(x.key for x, still in zip(task.found, fails, strict=True) if still is kept)
        for kept in (False, True)
    }
    session.emit(Retried(task.cause.key, said[False], said[True]))

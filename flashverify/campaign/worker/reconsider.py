"""A second diagnosis of a finding, with more time than the first one had."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from flashverify.campaign.causes.diagnoses import says_more
from flashverify.campaign.protocol import Reconsidered, Started
from flashverify.case.text import parse_case

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Reconsider
    from flashverify.campaign.worker.session import Session

__all__ = ["reconsider"]

_SAYING = 0.9
"""Share of the time for the diagnosis: it may end a little late."""


def reconsider(session: Session, task: Reconsider) -> None:
    """Emit `Reconsidered` if the diagnosis says more now."""
    finding, seconds = task.cause, _SAYING * task.limit
    fails = True if finding.confirmation.failed else None
    session.emit(Started())
    try:
        found = session.toolkit.diagnose(
            session.subject(finding.subject_spec),
            parse_case(finding.case),
            finding.verdict,
            first=parse_case(finding.first),
            seconds=seconds,
            work=seconds,
            afresh=lambda: fails,
        )
    except Exception as error:  # what was said first stands
        print(f"diagnose failed: {type(error).__name__}: {error}", file=sys.stderr)
        return
    if says_more(found, finding.diagnosis):
        session.emit(Reconsidered(finding.key, found))

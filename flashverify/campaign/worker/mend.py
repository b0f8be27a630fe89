"""Changes of a subject's source that make it right, looked for in a child of the worker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import Mended, Started
from flashverify.campaign.worker.confined import Confined, first_line
from flashverify.case.text import parse_case
from flashverify.judge.record import Repair

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Mend
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case

__all__ = ["Mender", "mend"]

_SEARCHING = 0.9
"""Share of the time for the search: what was begun may end a little late."""


class Mender(Confined[Repair]):
    """A child that looks for repairs.

    Args:
        session: of the worker.
        spec: of the subject.
        case: where it fails.
        first: another case that fails likewise.
        seconds: after which the child is ended.

    Raises:
        OSError: there is no room for another process.
    """

    def __init__(self, session: Session, spec: str, case: Case, first: Case, seconds: float) -> None:
        work = partial(session.toolkit.repairs, session.subject(spec), case, first=first, seconds=_SEARCHING * seconds)
        super().__init__(Repair, work, session.emit, seconds)


def mend(session: Session, task: Mend) -> None:
    """Emit `Mended` where repairs are found in time, or the search for them ends early."""
    session.emit(Started())
    finding = task.cause
    case, first = parse_case(finding.case), parse_case(finding.first)
    try:
        with Mender(session, finding.subject_spec, case, first, task.limit) as mender:
            found, failure = mender.found(task.limit), mender.failure
    except OSError as error:
        found, failure = (), first_line(error)
    if found or failure:
        session.emit(Mended(finding.key, found, failure))

"""Changes of a subject's source that make it right, looked for in a child of the worker: what an edited function leaves behind ends with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.protocol import Mended, Started
from flashverify.case.text import parse_case
from flashverify.judge.record import Repair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.protocol import Mend
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case

__all__ = ["Mender", "mend", "mending"]

_SEARCHING = 0.9
"""Share of the time for the search: what was begun may end a little late."""
_CHUNK = 1 << 16


class Mender:
    """A child that looks for repairs.

    Args:
        session: of the worker.
        spec: of the subject.
        case: where it fails.
        first: another case that fails likewise.
        seconds: after which the child is ended.
    """

    def __init__(self, session: Session, spec: str, case: Case, first: Case, seconds: float) -> None:
        subject = session.subject(spec)
        self._end = time.monotonic() + seconds
        self._answer, answer = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                found = session.toolkit.repairs(subject, case, first=first, seconds=_SEARCHING * seconds)
                os.write(answer, msgspec.json.encode(found))
            except Exception as error:  # the finding stands without a repair
                print(f"repair failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(0)
        os.close(answer)
        self._told = b""

    def found(self, seconds: float) -> tuple[Repair, ...]:
        """The repairs, if they are known within so many seconds; the child is ended then."""
        end = min(self._end, time.monotonic() + seconds)
        while select.select([self._answer], [], [], max(0.0, end - time.monotonic()))[0]:
            part = os.read(self._answer, _CHUNK)
            if not part:
                break
            self._told += part
        self.close()
        try:
            return msgspec.json.decode(self._told, type=tuple[Repair, ...])
        except msgspec.DecodeError:  # nothing was told, or not all of it
            return ()

    def close(self) -> None:
        """End the child; nothing where it is ended."""
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            os.close(self._answer)
            self._child = 0


@contextlib.contextmanager
def mending(session: Session, spec: str, case: Case, first: Case, seconds: float) -> Iterator[Mender]:
    """A child that looks for repairs while something else is done, until the end of the block."""
    mender = Mender(session, spec, case, first, seconds)
    try:
        yield mender
    finally:
        mender.close()


def mend(session: Session, task: Mend) -> None:
    """Emit `Mended` where repairs are found in time."""
    session.emit(Started())
    finding = task.cause
    case, first = parse_case(finding.case), parse_case(finding.first)
    with mending(session, finding.subject_spec, case, first, task.limit) as mender:
        if found := mender.found(task.limit):
            session.emit(Mended(finding.key, found))

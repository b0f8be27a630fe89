"""Changes of a subject's source that make it right, looked for in a child of the worker: what an edited function leaves behind ends with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.protocol import Mended, Started
from flashverify.case.text import parse_case
from flashverify.judge.record import Repair
from flashverify.repair.confinement import confine

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Mend
    from flashverify.campaign.worker.session import Session
    from flashverify.case.case import Case

__all__ = ["Mender", "mend"]

_SEARCHING = 0.9
"""Share of the time for the search: what was begun may end a little late."""
_SIGN = 1.0
"""Seconds after which a worker that waits says that it is alive."""
_CHUNK = 1 << 16
_WORDS = 300
"""Characters of an error that are told."""
_FAILED = b"!"
"""Begins the line that says why the child ended early; those of repairs are JSON."""


class Mender:
    """A child that looks for repairs.

    Args:
        session: of the worker.
        spec: of the subject.
        case: where it fails.
        first: another case that fails likewise.
        seconds: after which the child is ended.

    Attributes:
        failure: why the child ended early, in words; empty where it did not, and before `found`.

    Raises:
        OSError: there is no room for another process.
    """

    def __init__(self, session: Session, spec: str, case: Case, first: Case, seconds: float) -> None:
        subject = session.subject(spec)
        self._emit, self._end = session.emit, time.monotonic() + seconds
        self._answer, answer = os.pipe()
        try:
            self._child = os.fork()
        except OSError:
            os.close(self._answer)
            os.close(answer)
            raise
        if self._child == 0:
            try:
                confine()
                for found in session.toolkit.repairs(subject, case, first=first, seconds=_SEARCHING * seconds):
                    os.write(answer, msgspec.json.encode(found) + b"\n")
            except Exception as error:  # the finding stands without a repair
                os.write(answer, _FAILED + _first_line(error).encode() + b"\n")
            finally:
                os._exit(0)
        os.close(answer)
        self._told, self.failure = b"", ""

    def __enter__(self) -> Mender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def found(self, seconds: float) -> tuple[Repair, ...]:
        """The repairs that are known when the child is done, or after so many seconds; it is ended then."""
        end = min(self._end, time.monotonic() + seconds)
        while True:
            left = max(0.0, end - time.monotonic())
            if select.select([self._answer], [], [], min(left, _SIGN))[0]:
                part = os.read(self._answer, _CHUNK)
                if not part:
                    self._over()
                    break
                self._told += part
            elif left <= 0:
                break
            else:
                self._emit(Started())  # a worker that waits is alive
        self.close()
        told = self._told.split(b"\n")[:-1]  # what follows the last line was not told whole
        failures = [line for line in told if line.startswith(_FAILED)]
        if failures:
            self.failure = failures[0].removeprefix(_FAILED).decode(errors="replace")
        return tuple(msgspec.json.decode(line, type=Repair) for line in told if line not in failures)

    def _over(self) -> None:
        """The child ended by itself."""
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            self.failure = f"the process that looked for one ended with {_ending(code)}"
        os.close(self._answer)
        self._child = 0

    def close(self) -> None:
        """End the child; nothing where it is ended."""
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            os.close(self._answer)
            self._child = 0


def mend(session: Session, task: Mend) -> None:
    """Emit `Mended` where repairs are found in time, or the search for them ends early."""
    session.emit(Started())
    finding = task.cause
    case, first = parse_case(finding.case), parse_case(finding.first)
    try:
        with Mender(session, finding.subject_spec, case, first, task.limit) as mender:
            found, failure = mender.found(task.limit), mender.failure
    except OSError as error:
        found, failure = (), _first_line(error)
    if found or failure:
        session.emit(Mended(finding.key, found, failure))


def _first_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".splitlines()[:1])[:_WORDS]


def _ending(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"signal {-code}"

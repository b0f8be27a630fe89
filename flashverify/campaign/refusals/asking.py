"""Cases outside the declarations of subjects, in processes that may die or hang. Imports no torch."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING

import msgspec

from flashverify.campaign.refusals.record import Asked, Begun, Ended, Outside, Refusals
from flashverify.campaign.supervisor.process import exit_name, worker_environment
from flashverify.errors import NoVerdictError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CHILD", "ask_outside"]

CHILD = "flashverify.campaign.refusals.child"
"""The module that is run in the processes."""

_EACH = 4
"""Cases for every property."""
_SECONDS = 120.0
"""For the cases of a subject, beside the time that a process takes to start."""
_START_LIMIT = 300.0
_TAIL = 300
_LINE = msgspec.json.Decoder(Begun | Ended)


def ask_outside(
    subjects: Sequence[str],
    *,
    device: str,
    seed: int,
    numerics: str = "ieee",
    case_limit: float = 60.0,
    seconds: float = _SECONDS,
    each: int = _EACH,
) -> Refusals:
    """What subjects make of cases that leave their declaration by one property.

    Args:
        subjects: as `--subject` takes them.
        device: `cpu` or `cuda`.
        seed: of the draws.
        numerics: of interpreted kernels.
        case_limit: seconds after which a case hangs.
        seconds: for the cases of a subject.
        each: cases for every property.

    Raises:
        NoVerdictError: a process ended before it ran a case.
    """
    found: list[Outside] = []
    unfinished = []
    for subject in subjects:
        cases: list[Outside] = []
        left, done = seconds, False
        while not done and left > 0:
            asked = Asked(subject, device, seed, each, numerics, tuple(case.case for case in cases))
            before = len(cases)
            begun = time.monotonic()
            done = _run(asked, cases, case_limit, left)
            left -= time.monotonic() - begun
            if not done and len(cases) == before:
                break
        found += cases
        unfinished += [] if done else [subject]
    return Refusals(tuple(found), tuple(unfinished))


def _run(asked: Asked, cases: list[Outside], case_limit: float, seconds: float) -> bool:
    """Adds what one process says; true where it ran every case, false where it was lost or the time was over."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", CHILD),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=worker_environment(asked.device),
            process_group=0,
        )
        try:
            return _listen(process, asked, cases, case_limit, seconds, errors)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _listen(
    process: subprocess.Popen[bytes], asked: Asked, cases: list[Outside], case_limit: float, seconds: float, errors: IO[bytes]
) -> bool:  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(asked))
    process.stdin.close()
    process.stdin = None
    running: Begun | None = None
    end, limit = None, _START_LIMIT
    lines = _Lines(process.stdout)
    while True:
        line = lines.next(
            limit if end is None else max(0.0, min(limit, end - time.monotonic()) if running is None else limit)
        )
        if line is None:
            if running is None:
                return False
            cases.append(_outside(asked, running, Ended("hung", f"it did not end within {case_limit:g} s")))
            return False
        if not line:
            code = process.wait()
            if running is not None:
                cases.append(_outside(asked, running, Ended("died", f"the process died with {exit_name(code)}")))
                return False
            if code:
                errors.seek(0)
                told = errors.read().decode(errors="replace").strip().splitlines()
                last = told[-1][:_TAIL] if told else ""
                raise NoVerdictError(
                    f"{asked.subject} outside its declaration: the process ended with {exit_name(code)}: {last}"
                )
            return True
        message = _LINE.decode(line)
        if end is None:
            end = time.monotonic() + seconds
        if isinstance(message, Begun):
            running, limit = message, case_limit
        elif running is not None:
            cases.append(_outside(asked, running, message))
            running = None
            if time.monotonic() > end:
                return False


def _outside(asked: Asked, begun: Begun, ended: Ended) -> Outside:
    return Outside(asked.subject, begun.case, begun.property, ended.outcome, ended.message)


class _Lines:
    """Lines of a pipe, with a limit of time for each."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._descriptor, self._buffer = pipe.fileno(), b""

    def next(self, limit: float) -> bytes | None:
        """The next line; empty at the end, None after `limit` seconds."""
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                data = os.read(self._descriptor, 1 << 16)
                if not data:
                    return b""
                self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

"""Questions to a process of its own: a crash or a hang of the subject is an answer, and the next question gets a fresh process."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from typing import IO, Protocol

import msgspec

from flashverify.campaign.supervisor.process import exit_name
from flashverify.child_process import child_environment
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError
from flashverify.probing.answers import Answer, Failed, Loaded, Lost
from flashverify.probing.questions import Load, Question

__all__ = ["Asker", "Process"]

_START_LIMIT = 300.0
"""Seconds that a process may take to import torch, Triton and the subject."""
_TAIL = 2000


class Asker(Protocol):
    """Whoever answers questions about a subject."""

    def ask(self, question: Question) -> Answer | Lost:
        """The answer."""


class Process:
    """A process that runs the subject; a new one after each that was lost.

    Args:
        subject: as `--subject` takes it.
        device: `cpu` or `cuda`.
        limit: seconds that a question may take.

    Attributes:
        lost: processes that died or were killed.
    """

    def __init__(self, subject: str, device: str, limit: float) -> None:
        self._load, self._limit = Load(subject=subject, device=device), limit
        self._popen: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._buffer = b""
        self.lost = 0

    def start(self) -> Loaded:
        """Loads the subject.

        Raises:
            FlashverifyError: it cannot be loaded.
        """
        self.close()
        environment = child_environment(interpret=self._load.device == "cpu")
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._popen = subprocess.Popen(
            (sys.executable, "-P", "-m", "flashverify.probing.child", self._load.device),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            process_group=0,
        )
        answer = self._put(self._load, _START_LIMIT)
        if isinstance(answer, Loaded):
            return answer
        self.close()
        if isinstance(answer, Lost):
            raise NoVerdictError(f"the process of {self._load.subject} ended before it ran a case: {answer.why}")
        assert isinstance(answer, Failed)
        kind = {"SubjectLoadError": SubjectLoadError, "UsageError": UsageError}.get(answer.kind, NoVerdictError)
        raise kind(answer.message if answer.kind else f"{self._load.subject} raised {answer.message}")

    def ask(self, question: Question) -> Answer | Lost:
        """The answer, or why the process was lost."""
        if self._popen is None:
            self.start()
        answer = self._put(question, self._limit)
        if isinstance(answer, Lost):
            self.lost += 1
            self.close()
        return answer

    def _put(self, question: Question, limit: float) -> Answer | Lost:
        assert self._popen is not None
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(msgspec.json.encode(question) + b"\n")
            self._popen.stdin.flush()
            line = self._line(limit)
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        if line is None:
            return Lost(why=f"it did not end within {limit:g} s")
        if not line:
            code = self._popen.wait()
            return Lost(why=f"the process died with {exit_name(code)}{self._printed()}")
        answer: Answer = msgspec.json.decode(line, type=Answer)
        return answer

    def _line(self, limit: float) -> bytes | None:
        """The next line of the process; empty at its end, None after `limit` seconds."""
        assert self._popen is not None
        assert self._popen.stdout is not None
        descriptor, end = self._popen.stdout.fileno(), time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return b""
                self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _printed(self) -> str:
        """The last line that the process printed, after a colon."""
        self._errors.seek(0)
        lines = self._errors.read()[-_TAIL:].decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""

    def close(self) -> None:
        """Ends the process."""
        process, self._popen, self._buffer = self._popen, None, b""
        if process is not None:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._errors.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""A child of a worker in which edits of a subject's source are tried: what an edited function leaves behind ends with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from flashverify.campaign.protocol import Started
from flashverify.repair.confinement import confine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

__all__ = ["Confined", "first_line"]

T = TypeVar("T")

_SIGN = 1.0
"""Seconds after which a worker that waits says that it is alive."""
_CHUNK = 1 << 16
_WORDS = 300
"""Characters of an error that are told."""
_FAILED = b"!"
"""Begins the line that says why the child ended early; those of answers are JSON."""


class Confined(Generic[T]):
    """A child that does nothing but compute, and hands up each answer as soon as it has it.

    Args:
        kind: of the answers.
        work: what it does; it gives the answers.
        emit: hands an event of the worker up.
        seconds: after which the child is ended.

    Attributes:
        failure: why the child ended early, in words; empty where it did not, and as long as nobody looked.

    Raises:
        OSError: there is no room for another process.
    """

    def __init__(
        self, kind: type[T], work: Callable[[], Iterable[T]], emit: Callable[[msgspec.Struct], None], seconds: float
    ) -> None:
        self._kind, self._emit, self._end = kind, emit, time.monotonic() + seconds
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
                for found in work():
                    os.write(answer, msgspec.json.encode(found) + b"\n")
            except Exception as error:  # the finding stands as it is
                os.write(answer, _FAILED + first_line(error).encode() + b"\n")
            finally:
                os._exit(0)
        os.close(answer)
        self._told, self.failure = b"", ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def found(self, seconds: float) -> tuple[T, ...]:
        """The answers that are known when the child is done, or after so many seconds; it is ended then."""
        end = time.monotonic() + seconds
        while not self.look(min(_SIGN, max(0.0, end - time.monotonic()))) and time.monotonic() < end:
            self._emit(Started())  # a worker that waits is alive
        self.close()
        return self.answers

    def look(self, seconds: float = 0.0) -> bool:
        """Take in what the child says within so many seconds; whether it is done, or its time is over."""
        begun = time.monotonic()
        while self._child:
            left = min(begun + seconds, self._end) - time.monotonic()
            if not select.select([self._answer], [], [], max(0.0, left))[0]:
                break
            if part := os.read(self._answer, _CHUNK):
                self._told += part
            else:
                self._over()
        return not self._child or time.monotonic() >= self._end

    @property
    def answers(self) -> tuple[T, ...]:
        """What the child gave until now; what follows the last line was not told whole."""
        lines = (line for line in self._told.split(b"\n")[:-1] if not line.startswith(_FAILED))
        return tuple(msgspec.json.decode(line, type=self._kind) for line in lines)

    def _over(self) -> None:
        """The child ended by itself."""
        failures = [line for line in self._told.split(b"\n") if line.startswith(_FAILED)]
        if failures:
            self.failure = failures[0].removeprefix(_FAILED).decode(errors="replace")
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            ending = f"exit code {code}" if code > 0 else f"signal {-code}"
            self.failure = f"the process that looked for one ended with {ending}"
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


def first_line(error: Exception) -> str:
    """An error in a line."""
    return " ".join(f"{type(error).__name__}: {error}".splitlines()[:1])[:_WORDS]

"""Standard output and error of a command, which lives on when nobody reads them any more."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Streams", "lasting_streams"]

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET, errno.ESTALE)
"""Errors of a reader that went away: a closed pipe, a terminal that hung up, a descriptor that was never open."""


class _Lasting(io.FileIO):
    """A descriptor that never raises: what cannot be written is dropped, and why is kept where the disk refused it."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.refused = ""

    def write(self, data: Any, /) -> int:
        """Bytes that were taken."""
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in _GONE:
                self.refused = self.refused or str(error)
            return memoryview(data).nbytes


class Streams:
    """What stands in for `sys.stdout` and `sys.stderr`.

    Attributes:
        refused: why the disk did not take what was printed to standard output; empty where it did.
    """

    def __init__(self) -> None:
        self._raw: list[_Lasting] = []

    def over(self, descriptor: int) -> io.TextIOWrapper:
        """A text stream to a descriptor; text that its encoding does not know is escaped."""
        raw = _Lasting(descriptor)
        self._raw.append(raw)
        line_by_line = descriptor == 2 or os.isatty(descriptor)
        return io.TextIOWrapper(io.BufferedWriter(raw), errors="backslashreplace", line_buffering=line_by_line)

    @property
    def refused(self) -> str:
        """See the class."""
        return self._raw[0].refused if self._raw else ""


def _open_missing() -> None:
    """Give descriptors 0 to 2 something to be, so that no file of a run gets one of them and what is printed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


@contextlib.contextmanager
def lasting_streams() -> Iterator[Streams]:
    """Replace the standard streams of a process for the time of a command; those that a caller replaced already stay as they are."""
    streams = Streams()
    _open_missing()
    before = sys.stdout, sys.stderr
    ours = [now is original for now, original in zip(before, (sys.__stdout__, sys.__stderr__), strict=True)]
    if not all(ours):
        yield streams
        return
    for stream in before:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    sys.stdout, sys.stderr = streams.over(1), streams.over(2)
    try:
        yield streams
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before

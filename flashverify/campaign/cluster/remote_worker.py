"""A worker of a group as the supervisor sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import EventLines, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from flashverify.campaign.cluster.messages import Report
    from flashverify.campaign.protocol import Event
    from flashverify.campaign.supervisor.hosts import Outage
    from flashverify.campaign.worker.inflight import Inflight

__all__ = ["RemoteWorker"]

_END_LIMIT = 10.0
"""Seconds that the last report of a worker that is ended is waited for."""


class RemoteWorker:
    """Fed by the thread that listens to its group, read by the supervisor.

    Args:
        send: takes a line for the worker.
        end: asks for its end.
    """

    def __init__(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self._send, self._end = send, end
        self._lock, self._gone = threading.Lock(), threading.Event()
        self._arrived, self._lines = b"", EventLines()
        self._memory = 0
        self._last: Report | None = None
        self._outage: Outage | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    # --- the thread that listens -------------------------------------------------------------------------------------

    def take(self, report: Report) -> None:
        """What is new."""
        with self._lock:
            self._arrived += report.events
            self._memory = report.memory
            if report.over:
                self._last = report
                self._gone.set()
            if report.events or report.over:
                self._wake()

    def lose(self, outage: Outage) -> None:
        """Its group is gone."""
        with self._lock:
            if self._last is None:
                self._outage = outage
                self._gone.set()
                self._wake()

    def _wake(self) -> None:
        if self._write >= 0:
            with contextlib.suppress(BlockingIOError):  # it was not read yet
                os.write(self._write, b"x")

    # --- the supervisor ----------------------------------------------------------------------------------------------

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait for."""
        return (self._read,)

    @property
    def outage(self) -> Outage | None:
        """What ended it together with its neighbours; None where nothing did."""
        return self._outage

    def send(self, message: msgspec.Struct) -> None:
        """One line to the worker; a dead one is noticed by `code()`."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """The same of a message that is encoded."""
        if not self._gone.is_set():
            self._send(line)

    def read(self) -> list[Event]:
        """Events that are there; raises msgspec.MsgspecError where something else is."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 65536)
        with self._lock:
            data, self._arrived = self._arrived, b""
        return self._lines.events(data)

    @property
    def died(self) -> bool:
        """Whether it ended by itself."""
        return self._last is not None and self._last.code is not None

    def printed(self) -> str:
        """The last lines that the worker printed."""
        return self._last.printed if self._last is not None else ""

    def in_flight(self) -> Inflight | None:
        """The case that was announced and did not end; nothing after an outage, which is the fault of no case."""
        return self._last.in_flight if self._last is not None else None

    def memory(self) -> int:
        """Resident bytes, 0 where unknown."""
        return self._memory

    def starved(self) -> float:
        """Seconds that it waited for a processor since it began, 0 where unknown, as it is of another machine."""
        return 0.0

    def code(self) -> int | None:
        """Its exit code once it is dead, None before."""
        if not self._gone.is_set():
            return None
        last = self._last
        return -signal.SIGKILL if last is None or last.code is None else last.code

    def kill(self) -> None:
        """End the worker; `code()` says when it is dead."""
        if not self._gone.is_set():
            self._end()

    def close(self) -> None:
        """End the worker where it still runs and wait for its last report."""
        self.kill()
        self._gone.wait(_END_LIMIT)
        with self._lock:
            read, write, self._read, self._write = self._read, self._write, -1, -1
        for descriptor in (read, write):
            if descriptor >= 0:
                os.close(descriptor)

"""The workers of one place: processes that are started, fed and read on their own machine.

All of its work is done by whoever calls `poll`, so that one thread starts the processes, which end with that thread, and reads them.
The other methods leave an order, which a waiting `poll` carries out at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import tempfile
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.cluster.messages import Hello, Report, encode_reports
from flashverify.campaign.environment import architecture, versions
from flashverify.campaign.kernel_cache import CACHE_VARIABLE, cache_environment
from flashverify.campaign.supervisor.process import ProcessSetup, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WorkerGroup"]

_ANSWER_BYTES = 64 * 1024
"""Of events in one answer: Ray keeps answers of less than 100 KiB out of its object store."""


class WorkerGroup:
    """Processes of this machine, each with a key.

    Args:
        subjects: specs, after which the cache of compiled kernels is named.
    """

    def __init__(self, subjects: tuple[str, ...]) -> None:
        self._subjects = subjects
        self._processes: dict[int, WorkerProcess] = {}
        self._unsent: dict[int, bytes] = {}
        self._over: list[Report] = []
        self._folder = tempfile.TemporaryDirectory(prefix="flashverify-group-")
        self._orders: deque[Callable[[], None]] = deque()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)

    def hello(self) -> bytes:
        """A `Hello`, encoded."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return msgspec.msgpack.encode(Hello(versions(), memory, architecture()))

    def start(self, key: int, setup: bytes) -> None:
        """Start a worker; `setup` is a `ProcessSetup` as JSON."""
        self._order(partial(self._start, key, setup))

    def send(self, key: int, line: bytes) -> None:
        """A message for a worker; nothing where it is gone."""
        self._order(partial(self._send, key, line))

    def end(self, key: int) -> None:
        """End a worker, with what its subject started; its last report says so."""
        self._order(partial(self._end, key))

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        with contextlib.suppress(BlockingIOError):  # it is awake
            os.write(self._wake, b"x")

    def poll(self, seconds: float) -> bytes:
        """What is new, as reports; waits so long for it at most."""
        if not (self._orders or self._over or any(self._unsent.values())):
            with selectors.DefaultSelector() as selector:
                selector.register(self._woken, selectors.EVENT_READ)
                for process in self._processes.values():
                    for descriptor in process.descriptors:
                        selector.register(descriptor, selectors.EVENT_READ)
                selector.select(seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 65536)
        while self._orders:
            self._orders.popleft()()
        room, found = _ANSWER_BYTES, []
        for key, process in tuple(self._processes.items()):
            code = process.code()  # what a dead worker said is read after it was seen dead
            data = self._unsent.pop(key) + process.received()
            now, rest = data[:room], data[room:]
            room -= len(now)
            if rest or code is None:
                self._unsent[key] = rest
                found.append(Report(key, now, process.memory()))
            else:
                found.append(self._last(key, process, now, code))
        over, self._over = self._over, []
        return encode_reports(found + over)

    def _start(self, key: int, setup: bytes) -> None:
        given = msgspec.json.decode(setup, type=ProcessSetup)
        if given.device == "cuda" and CACHE_VARIABLE not in given.environment:
            found = cache_environment(self._subjects, os.environ)
            given = msgspec.structs.replace(given, environment=given.environment | found)
        self._processes[key] = WorkerProcess(given, self._note(key))
        self._unsent[key] = b""

    def _note(self, key: int) -> Path:
        return Path(self._folder.name) / f"{key}.json"

    def _send(self, key: int, line: bytes) -> None:
        if key in self._processes:
            self._processes[key].send_line(line)

    def _end(self, key: int) -> None:
        process = self._processes.get(key)
        if process is not None:
            process.close()
            self._unsent.pop(key)
            self._over.append(self._last(key, process, b"", None))

    def _last(self, key: int, process: WorkerProcess, events: bytes, code: int | None) -> Report:
        process.close()
        del self._processes[key]
        report = Report(key, events, over=True, code=code, printed=process.printed(), in_flight=process.in_flight())
        self._note(key).unlink(missing_ok=True)
        return report

    def close(self) -> None:
        """End every worker. For the one who polls."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        self._folder.cleanup()
        for descriptor in (self._woken, self._wake):
            os.close(descriptor)

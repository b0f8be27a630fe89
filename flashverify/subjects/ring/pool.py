"""Rank processes that a worker keeps: started when first asked for, ended with the worker, replaced when one of them fails."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection, wait

from flashverify.child_process import child_environment
from flashverify.errors import FlashverifyError
from flashverify.starvation import starved, starved_there
from flashverify.subjects.evidence import interpreted_as
from flashverify.subjects.ring.messages import Failed, Packed, Task, stack_file

__all__ = ["RankError", "Ranks", "backend_of", "ranks_of"]

SECONDS = 300.0
"""How long all ranks together may take for a pass. A rank waits for another one for a part of it, so that its own error comes first."""
_FOR_EACH_OTHER = 0.4
_STACKS_S = 2.0
"""How long ranks that are stuck may take to say where."""
_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}


class RankError(FlashverifyError):
    """A rank raised an exception, ended, or did not answer."""


class _Host:
    """The process that ranks are forked from."""

    def __init__(self, *, interpreted: bool, numerics: str) -> None:
        self._control, theirs = socket.socketpair()
        self.owner = os.getpid()
        settings = json.dumps({"numerics": numerics if interpreted else ""})
        command = [sys.executable, "-m", "flashverify.subjects.ring.host", str(theirs.fileno()), settings]
        environment = child_environment(interpret=interpreted)
        for name, value in _LOOPBACK.items():
            environment.setdefault(name, value)
        environment.setdefault("OMP_NUM_THREADS", "1")
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
            )
        self._answers = self._control.makefile("r")

    @property
    def alive(self) -> bool:
        """Whether it runs, and is this process's own."""
        return self.owner == os.getpid() and self._process.poll() is None

    def fork(self, ranks: int, package: str, store: str, backend: str) -> tuple[list[Connection], list[int]]:
        """Starts ranks; returns their pipes and process ids.

        Raises:
            RankError: the host has ended.
        """
        pairs = [socket.socketpair() for _ in range(ranks)]
        order = {"package": package, "store": store, "backend": backend, "seconds": SECONDS * _FOR_EACH_OTHER}
        message = json.dumps(order).encode()
        try:
            socket.send_fds(self._control, [message], [theirs.fileno() for _, theirs in pairs])
            answer = self._answers.readline()
        except OSError:
            answer = ""
        for _, theirs in pairs:
            theirs.close()
        if not answer:
            raise RankError(f"the process that starts ranks ended with exit code {self._process.wait()}")
        return [Connection(mine.detach()) for mine, _ in pairs], json.loads(answer)

    def close(self) -> None:
        """Ends it, and so its ranks."""
        if self.owner != os.getpid():
            return
        self._answers.close()
        self._control.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Ranks:
    """Ranks 0 to n - 1 of one process group.

    Args:
        host: forks them.
        ranks: their number.
        package: the kernels that they will run.
        backend: see `flashverify.subjects.ring.rank.serve`.
    """

    def __init__(self, host: _Host, ranks: int, package: str, backend: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="flashverify-ring-")
        self._store = os.path.join(self._folder.name, "store")
        self._pipes, self._pids = host.fork(ranks, package, self._store, backend)

    def run(self, tasks: list[Task]) -> list[dict[str, Packed]]:
        """What each rank answers to its task.

        Raises:
            RankError: a rank failed; none of them runs any more.
        """
        try:
            return self._run(tasks)
        except BaseException:
            self.close()
            raise

    def _run(self, tasks: list[Task]) -> list[dict[str, Packed]]:
        count = len(self._pipes)
        for pipe, task in zip(self._pipes, tasks, strict=True):
            with contextlib.suppress(OSError):  # a rank that has ended says why below
                pipe.send(task)
        answers: dict[int, dict[str, Packed]] = {}
        waited = [starved(pid) for pid in self._pids]
        end = time.monotonic() + SECONDS
        while len(answers) < count:
            waiting = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in answers}
            ready = set(wait(list(waiting), max(end - time.monotonic(), 0.0)))
            if not ready:
                silent = sorted(waiting.values())
                raise RankError(
                    f"{_named(silent)} of {count} did not answer within {SECONDS:g} s\n{self._stacks(silent)}"
                )
            for pipe, rank in waiting.items():
                if pipe not in ready:
                    continue
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    raise RankError(f"{_named([rank])} of {count} ended without an answer") from None
                if isinstance(answer, Failed):
                    raise RankError(
                        f"{_named([rank])} of {count} raised {answer.kind}: {answer.message}\n{answer.traceback}"
                    )
                answers[rank] = answer
        starved_there(max(0.0, min(starved(pid) - was for pid, was in zip(self._pids, waited, strict=True))))
        return [answers[rank] for rank in range(count)]

    def _stacks(self, silent: list[int]) -> str:
        """Where the ranks are that do not answer, in the words of Python's `faulthandler`."""
        for rank in silent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], signal.SIGUSR1)
        end = time.monotonic() + _STACKS_S
        found = dict.fromkeys(silent, "")
        while not all(found.values()) and time.monotonic() < end:
            time.sleep(0.05)
            for rank in silent:
                with contextlib.suppress(OSError), open(stack_file(self._store, rank)) as file:
                    found[rank] = file.read()
        return "\n".join(f"rank {rank} stands at\n{text or '  (it does not say)'}" for rank, text in found.items())

    def close(self) -> None:
        """Ends the ranks, also those that wait for another one."""
        for pipe in self._pipes:
            pipe.close()
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._pids = []
        self._folder.cleanup()

    @property
    def usable(self) -> bool:
        """Whether they still run, as far as this process knows."""
        return bool(self._pids)


def ranks_of(count: int, package: str, *, interpreted: bool) -> Ranks:
    """The ranks that this process keeps, started if there are none.

    Args:
        count: their number.
        package: the kernels that they will run; others run as well, but less quickly the first time.
        interpreted: their kernels run in flashverify's interpreter, with the numerics of this process; otherwise they are compiled.

    Raises:
        RankError: they cannot be started.
    """
    host = _host(interpreted, interpreted_as()[0] if interpreted else "")
    key = (host, count)
    found = _pools.get(key)
    if found is None or not found.usable:
        found = _pools[key] = Ranks(host, count, package, backend_of(count, interpreted))
    return found


_hosts: dict[tuple[bool, str], _Host] = {}
_pools: dict[tuple[_Host, int], Ranks] = {}


def _host(interpreted: bool, numerics: str) -> _Host:
    key = (interpreted, numerics)
    if key not in _hosts or not _hosts[key].alive:
        if not _hosts:
            atexit.register(_close)
        _hosts[key] = _Host(interpreted=interpreted, numerics=numerics)
    return _hosts[key]


def _close() -> None:
    for pool in _pools.values():
        if pool.usable:
            pool.close()
    for host in _hosts.values():
        host.close()


@functools.cache
def backend_of(count: int, interpreted: bool) -> str:
    """`nccl` where every rank has a GPU of its own."""
    if interpreted:
        return "gloo"
    import torch

    return "nccl" if torch.cuda.device_count() >= count else "gloo-cuda"


def _named(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

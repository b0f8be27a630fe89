"""A worker process as its parent sees it, and how its death is named."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

import msgspec

from flashverify.campaign.gpus import gpu_of_worker
from flashverify.campaign.protocol import Event, EventLines, WorkerConfig, encode
from flashverify.campaign.supervisor.mps import own_context
from flashverify.campaign.worker.inflight import Inflight, read_inflight
from flashverify.child_process import VISIBLE, child_environment
from flashverify.judge.verdict import Status, Verdict
from flashverify.starvation import proc_number, starved

__all__ = ["ProcessSetup", "WorkerProcess", "death_verdict", "hang_verdict", "worker_environment"]

_TAIL_BYTES = 16 * 1024
_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
"""Of glibc: what a process frees stays with it, so that the next tensor meets pages that are there. Of a case that is judged on the CPU
two page faults in three go. A process that interprets kernels is without it: there an access outside a tensor shall meet no tensor."""


class ProcessSetup(msgspec.Struct, frozen=True):
    """What every worker of a campaign shares; see `WorkerConfig`.

    Attributes:
        environment: variables that its processes have beside those of this process, as the GPU that they see.
        ahead: see `WorkerConfig`.
        gpus: those over which its processes take turns; with none each sees what `environment` shows.
        memory: bytes that each process may use; None is no limit.
        sharers: see `WorkerConfig`.
    """

    toolkit: str
    device: str
    case_limit: float
    plain: bool = False
    numerics: str = "ieee"
    environment: dict[str, str] = {}
    ahead: str = ""
    gpus: tuple[str, ...] = ()
    memory: int | None = None
    sharers: int = 1

    def of_worker(self, number: int) -> ProcessSetup:
        """That of worker `number`, which sees its own GPU alone."""
        gpu = gpu_of_worker(number, self.gpus)
        return msgspec.structs.replace(self, environment=self.environment | {VISIBLE: gpu}) if gpu else self


def worker_environment(device: str) -> dict[str, str]:
    """The child's environment: one thread per worker, and a context of its own where nobody gives it another."""
    kept = {} if device == "cpu" else {name: os.environ.get(name, value) for name, value in _KEPT_MEMORY.items()}
    own = {
        "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(tempfile.gettempdir()) / f"flashverify-hypothesis-{os.getuid()}"),
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    }
    return own_context(child_environment(interpret=device == "cpu")) | kept | own


class WorkerProcess:
    """One spawned worker: tasks in, events out, the tail of what it printed kept."""

    outage = None

    def __init__(self, setup: ProcessSetup, inflight: Path) -> None:
        self.inflight = inflight
        self._events, write = os.pipe()
        config = WorkerConfig(
            setup.toolkit,
            setup.device,
            str(inflight.absolute()),
            write,
            setup.case_limit,
            setup.plain,
            setup.numerics,
            setup.ahead,
            setup.memory,
            setup.sharers,
        )
        try:
            self.popen = subprocess.Popen(
                (sys.executable, "-P", "-m", "flashverify.campaign.worker.main"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                env=worker_environment(setup.device) | setup.environment,
                process_group=0,  # a Ctrl-C of the terminal reaches the supervisor alone; what a subject starts ends with it
            )
        finally:
            os.close(write)
        assert self.popen.stdout is not None
        self._printed = self.popen.stdout.fileno()
        os.set_blocking(self._events, False)
        os.set_blocking(self._printed, False)
        self._lines = EventLines()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.send(config)

    @property
    def descriptors(self) -> tuple[int, int]:
        """What to wait for."""
        return (self._events, self._printed)

    def send(self, message: msgspec.Struct) -> None:
        """One line to the worker; a dead one is noticed by `code()`."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """The same of a message that is encoded."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(line)
            self.popen.stdin.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def wait(self, seconds: float) -> list[Event]:
        """Events that arrive within `seconds`; returns at the first."""
        with selectors.DefaultSelector() as selector:
            for descriptor in self.descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
            selector.select(seconds)
        return self.read()

    def read(self) -> list[Event]:
        """Events that are there; never waits.

        Raises:
            msgspec.MsgspecError: what came is no event.
        """
        return self._lines.events(self.received())

    def received(self) -> bytes:
        """The same as the bytes that came."""
        for data in _drain(self._printed):
            self._tail.append(data)
            self._tail_bytes += len(data)
            while len(self._tail) > 1 and self._tail_bytes - len(self._tail[0]) > _TAIL_BYTES:
                self._tail_bytes -= len(self._tail.popleft())
        return b"".join(_drain(self._events))

    def printed(self, lines: int = 12) -> str:
        """The last lines that the worker printed."""
        text = b"".join(self._tail)[-_TAIL_BYTES:].decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:])

    def in_flight(self) -> Inflight | None:
        """The case that was announced and did not end."""
        return read_inflight(self.inflight)

    def memory(self) -> int:
        """Resident bytes, 0 where unknown."""
        return proc_number(self.popen.pid, "statm", 1) * os.sysconf("SC_PAGE_SIZE")

    def starved(self) -> float:
        """Seconds that it waited for a processor since it began."""
        return starved(self.popen.pid)

    def code(self) -> int | None:
        """Its exit code once it is dead, None before. What its subject had started is ended then."""
        if self.popen.returncode is None:
            with contextlib.suppress(ChildProcessError):  # somebody else asked for its end
                # It is not waited for yet: until then its number names no other group of processes.
                if os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return None
                self._end_group()
        return self.popen.poll()

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the worker; `code()` says when it is dead."""
        self.popen.kill()

    def close(self) -> None:
        """Kill the worker where it still runs, with what its subject started, and release everything."""
        if self.code() is None:
            self._end_group()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if self._events >= 0:
            os.close(self._events)
            self._events = -1


def _drain(descriptor: int) -> list[bytes]:
    found = []
    for _ in range(256):
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            break
        if not data:
            break
        found.append(data)
    return found


DEVICE_LOST = 86
"""Exit code of a worker whose case made the GPU unusable for it."""
LOST = "the GPU cannot be used any more"


def exit_name(returncode: int) -> str:
    """`SIGSEGV` for a signal, `exit-3` for an exit code, `device-lost` for that of `DEVICE_LOST`."""
    if returncode == DEVICE_LOST:
        return "device-lost"
    if returncode >= 0:
        return f"exit-{returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal-{-returncode}"


def death_verdict(returncode: int, printed: str, memory: int | None = None) -> Verdict:
    """The failure of a case that killed its process; `memory` where the supervisor killed it for using so many bytes."""
    if memory is not None:
        message = f"the worker used {memory / 2**30:.1f} GiB and was killed"
        return Verdict(check="crash", status=Status.FAIL, error="memory", message=message)
    name = exit_name(returncode)
    lines = [line.strip() for line in printed.splitlines()]
    if returncode == DEVICE_LOST:
        reason = next((line for line in reversed(lines) if line.startswith(LOST)), LOST)
        return Verdict(check="crash", status=Status.FAIL, error=name, message=reason[:500])
    where = next((line for line in lines if line.startswith("File ")), "")
    message = f"the process died with {name}" + (f" at {where}" if where else "")
    return Verdict(check="crash", status=Status.FAIL, error=name, message=message[:500])


def hang_verdict(limit: float) -> Verdict:
    """The failure of a case that did not end."""
    return Verdict(check="hang", status=Status.FAIL, error="hang", message=f"the case did not end within {limit:g} s")

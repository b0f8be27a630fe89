"""Commands and workers as forked processes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify import cli
from flashverify.campaign import environment, toolkit
from flashverify.campaign.commands import campaign
from flashverify.campaign.supervisor import engine, process
from flashverify.campaign.supervisor.events import FindingSeen
from flashverify.campaign.worker import main as worker
from flashverify.campaign.worker.session import Session

from .faults import WORKER, Steps
from .layer import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .faults import Fault

__all__ = ["Ended", "command", "warm_up"]

_LIMIT = 120.0
FAKES = Path(__file__).resolve().parents[2] / "tests" / "campaign"


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        code: exit code; negative is a signal, None where it hung and was killed.
        out: standard output.
        err: standard error.
        fired: whether its fault happened.
        steps: of the supervisor and of the workers.
        told: lines of the log: `found BUCKET` for each finding that was announced, and the fault.
    """

    code: int | None
    out: str
    err: str
    fired: bool
    steps: tuple[int, int]
    told: tuple[str, ...]


def warm_up() -> None:
    """Import what commands need, once, and take over orphans, so that none outlives its command."""
    sys.path.append(str(FAKES))
    import fake_toolkit  # noqa: F401

    import flashverify.campaign.commands.settings
    import flashverify.campaign.worker.attribute
    import flashverify.campaign.worker.listing
    import flashverify.campaign.worker.minimise
    import flashverify.campaign.worker.profile
    import flashverify.campaign.worker.search
    import flashverify.campaign.worker.separate
    import flashverify.ci.writing
    import flashverify.report.content
    import flashverify.subjects.source  # noqa: F401

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def command(
    words: Sequence[str],
    base: Path,
    *,
    fault: Fault | None = None,
    disturb: Callable[[int], None] | None = None,
) -> Ended:
    """Run a command line over the toy kernels.

    Args:
        words: behind `flashverify`; `--out run` is a folder of `base`.
        base: the current folder.
        fault: what happens in it.
        disturb: called with the number of its process while it runs; None only waits.
    """
    files = [base / name for name in ("out", "err", "log")]
    out, err, log = (os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644) for file in files)
    steps = Steps(fault, log)
    pid = os.fork()
    if not pid:
        _run(words, base, steps, (out, err))
    if disturb is not None:
        disturb(pid)
    code = _wait(pid)
    _end_orphans()
    for descriptor in (out, err, log):
        os.close(descriptor)
    texts = [file.read_text(encoding="utf-8") for file in files]
    counts = (steps.count("supervisor"), steps.count("worker"))
    return Ended(code, texts[0], texts[1], steps.fired, counts, tuple(texts[2].splitlines()))


def _wait(pid: int) -> int | None:
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _end_orphans() -> None:
    """Workers die with their supervisor; nothing of a command runs on when the next one begins."""
    deadline = time.monotonic() + 5
    while True:
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not done:
            if time.monotonic() > deadline:
                raise RuntimeError("a worker outlives its supervisor")
            time.sleep(0.002)


def _run(words: Sequence[str], base: Path, steps: Steps, streams: tuple[int, int]) -> None:
    """The child: never returns."""
    code = 70
    try:
        os.chdir(base)
        for descriptor, stream in enumerate(streams, 1):
            os.dup2(stream, descriptor)
        _patch(steps)
        FaultyDisk(steps, base / "run").install()
        try:
            cli.main(list(words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _patch(steps: Steps) -> None:
    """Toy kernels in small batches, forked workers, and a note of what is announced."""
    toolkit.BUNDLED = "fake_toolkit:toolkit"
    campaign.CampaignConfig = functools.partial(campaign.CampaignConfig, batch=8, repeats=2)  # type: ignore[assignment, misc]
    environment._commit = dict  # type: ignore[assignment]
    process.subprocess = types.SimpleNamespace(  # type: ignore[assignment]
        Popen=functools.partial(_Forked, steps), PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT
    )
    tell = engine.Engine._tell

    def told(self: engine.Engine, event: Any) -> None:
        if isinstance(event, FindingSeen):
            steps.tell(f"found {event.record.key.slug()}")
        tell(self, event)

    engine.Engine._tell = told  # type: ignore[method-assign]
    emit = Session.emit

    def emitted(self: Session, event: Any) -> None:
        steps.step("event", type(event).__name__, emit, self, event)

    Session.emit = emitted  # type: ignore[method-assign]


class _Forked:
    """A worker that is forked, with the face of `subprocess.Popen`."""

    def __init__(self, steps: Steps, args: Sequence[str], *, pass_fds: tuple[int, ...], env: dict[str, str], **_: Any):
        self.args, self.returncode = args, None
        tasks, write = os.pipe()
        read, printed = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _work(steps, tasks, printed, pass_fds, env)
        with contextlib.suppress(OSError):
            os.setpgid(self.pid, self.pid)  # as a spawned worker, it leads its group before anybody can end that
        os.close(tasks)
        os.close(printed)
        self.stdin, self.stdout = os.fdopen(write, "wb"), os.fdopen(read, "rb", buffering=0)
        self.returncode: int | None

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _work(steps: Steps, tasks: int, printed: int, passed: tuple[int, ...], env: dict[str, str]) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        for source, target in ((tasks, 0), (printed, 1), (printed, 2)):
            os.dup2(source, target)
        kept = {0, 1, 2, *passed, *steps.descriptors}
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        sys.stdout, sys.stderr = (open(fd, "w", buffering=1, closefd=False) for fd in (1, 2))  # noqa: SIM115
        os.environ.clear()
        os.environ.update(env)
        steps.role = WORKER
        code = worker.main()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)

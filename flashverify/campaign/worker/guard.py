"""How a worker keeps to itself: it dies with the supervisor, and its subject can neither read its tasks nor hide a crash."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1

__all__ = ["guard_process", "open_channel", "watch_group"]


def guard_process() -> None:
    """Die with the supervisor; be the first to go when memory runs out; leave Ctrl-C to the supervisor; name a crash."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        except OSError:
            pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(all_threads=False)


def watch_group() -> None:
    """Leave a process in the worker's group that ends the group when the worker dies: a supervisor that was killed cannot end what a subject started."""
    worker = os.getpid()
    if sys.platform != "linux" or os.getpgrp() != worker or os.fork():
        return
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        if os.getppid() == worker:
            signal.sigwait({signal.SIGUSR1})
        os.killpg(worker, signal.SIGKILL)
    finally:
        os._exit(1)


def open_channel() -> BinaryIO:
    """The tasks, moved away from descriptor 0, so that a subject that reads stdin finds it empty."""
    tasks = os.fdopen(os.dup(0), "rb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return tasks

"""How a worker keeps to itself: it dies with the supervisor, and its subject can neither read its tasks nor hide a crash."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import BinaryIO

__all__ = ["guard_process", "open_channel"]


def guard_process() -> None:
    """Die with the supervisor; be the first to go when memory runs out; leave Ctrl-C to the supervisor; name a crash."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        except OSError:
            pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(all_threads=False)


def open_channel() -> BinaryIO:
    """The tasks, moved away from descriptor 0, so that a subject that reads stdin finds it empty."""
    tasks = os.fdopen(os.dup(0), "rb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return tasks

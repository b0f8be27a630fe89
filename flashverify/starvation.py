"""How long work waited for a processor: a loaded machine makes a slow case, and no hang."""

from __future__ import annotations

import os

__all__ = ["proc_number", "starved", "starved_here", "starved_there"]

_elsewhere = 0.0


def proc_number(process: int | str, name: str, place: int) -> int:
    """Number `place` in `/proc/PROCESS/NAME`, from 0 on; 0 where the system does not say. It is read many times a second."""
    try:
        descriptor = os.open(f"/proc/{process}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 512).split()[place])
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return 0


def starved(process: int | str) -> float:
    """Seconds that the main thread of a process could run and had no processor, since it began; 0 where the system does not say.

    Source: the second field of `/proc/PID/schedstat`, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).
    """
    return proc_number(process, "schedstat", 1) / 1e9


def starved_here() -> float:
    """Seconds that the calling thread could run and had no processor, and those that `starved_there` was told of."""
    return starved("thread-self") + _elsewhere


def starved_there(seconds: float) -> None:
    """While this process waited for others, all of these could run and had no processor for so many seconds."""
    global _elsewhere
    _elsewhere += seconds

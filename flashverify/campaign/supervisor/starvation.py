"""How long a process waited for a processor: a loaded machine makes a slow case, and no hang."""

from __future__ import annotations

from pathlib import Path

__all__ = ["starved"]


def starved(pid: int) -> float:
    """Seconds that the main thread of a process could run and had no processor, since it began; 0 where the system does not say.

    Source: the second field of `/proc/PID/schedstat`, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0

"""How long a process waited for a processor: a loaded machine makes a slow case, and no hang."""

from __future__ import annotations

from flashverify.campaign.supervisor.proc_files import proc_number

__all__ = ["starved"]


def starved(pid: int) -> float:
    """Seconds that the main thread of a process could run and had no processor, since it began; 0 where the system does not say.

    Source: the second field of `/proc/PID/schedstat`, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).
    """
    return proc_number(pid, "schedstat", 1) / 1e9

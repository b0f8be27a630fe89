"""Numbers that Linux tells of a process, read many times a second."""

from __future__ import annotations

import os

__all__ = ["proc_number"]


def proc_number(pid: int, name: str, place: int) -> int:
    """Number `place` in `/proc/PID/NAME`, from 0 on; 0 where the system does not say."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 512).split()[place])
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return 0

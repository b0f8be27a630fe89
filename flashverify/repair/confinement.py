"""A process that tries edits of somebody's code computes, and does nothing else: it ends with the search, and stays confined until then."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

from flashverify.child_process import VISIBLE

__all__ = ["confine"]

_ROOM = 4 << 30
"""Bytes that a confined process may take beside those that it has."""
_PROCESSES = ("subprocess.", "socket.", "shutil.", "os.exec", "os.spawn", "os.posix_spawn", "ctypes.dlopen")
_REFUSED = frozenset(
    """
    os.remove os.rename os.rmdir os.mkdir os.link os.symlink os.truncate os.chmod os.chown os.system os.kill os.killpg os.fork os.forkpty
    """.split()  # noqa: SIM905
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def confine() -> None:
    """From here on this process writes no file, starts no process, opens no connection, asks for no GPU, and takes a bounded amount of memory.

    What an edit does of that raises: PermissionError, or MemoryError. It cannot be taken back.
    """
    _without_gpus()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if sys.platform == "linux" else 0
    if pages:
        limit = pages * resource.getpagesize() + _ROOM
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    sys.addaudithook(_refuse)


def _without_gpus() -> None:
    """Torch asks for no GPU here: the driver of one refuses to answer in the child of a process that asked it, or needs more memory than it may take."""
    os.environ[VISIBLE] = ""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda._lazy_init = _no_gpu
        torch.Tensor.is_pinned = _not_pinned


def _not_pinned(_tensor: object, _device: object = None) -> bool:
    """Of a tensor of a CPU torch asks the driver whether it made it."""
    return False


def _no_gpu() -> None:
    raise PermissionError("a process that tries edits asks for no GPU")


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _REFUSED or event.startswith(_PROCESSES) or (event == "open" and _writes(*arguments)):
        raise PermissionError(f"{event}: a process that tries edits does not do that")


def _writes(_path: object, mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return bool(set(mode) & set("wax+"))
    return isinstance(flags, int) and bool(flags & _WRITING)

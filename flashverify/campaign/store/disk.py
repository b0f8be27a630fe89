"""The one way to the disk: every call that changes a run folder is made here, one system call a function.

Callers take the module, not its functions, so that one place decides what a disk does.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "close",
    "create",
    "make_folder",
    "move",
    "open_file",
    "remove",
    "remove_folder",
    "sync",
    "sync_folder",
    "write",
    "write_at",
]


def make_folder(path: Path) -> None:
    """Make a folder in one that is there."""
    os.mkdir(path)


def open_file(path: Path, flags: int) -> int:
    """A descriptor of a file, made with mode 0644 where `flags` say so; processes that are started do not get it."""
    return os.open(path, flags | os.O_CLOEXEC, 0o644)


def create(folder: Path, prefix: str, suffix: str) -> tuple[int, str]:
    """A new file of a name that nothing has, with mode 0644: its descriptor and its path."""
    descriptor, path = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=folder)
    os.fchmod(descriptor, 0o644)
    return descriptor, path


def write(descriptor: int, data: bytes) -> int:
    """Write at the position of the file; how many bytes were taken."""
    return os.write(descriptor, data)


def write_at(descriptor: int, data: bytes, offset: int) -> int:
    """Write at an offset; how many bytes were taken."""
    return os.pwrite(descriptor, data, offset)


def sync(descriptor: int) -> None:
    """Wait until the data of a file are on the disk."""
    os.fsync(descriptor)


def close(descriptor: int) -> None:
    """Release a descriptor."""
    os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(old: Path | str, new: Path) -> None:
    """Give a file or a folder another name, in place of a file that has it."""
    os.replace(old, new)


def remove(path: Path | str) -> None:
    """Remove a file; nothing where there is none."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_folder(path: Path) -> None:
    """Remove an empty folder."""
    os.rmdir(path)

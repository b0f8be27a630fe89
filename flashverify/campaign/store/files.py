"""Durable files: atomic writes, capped reads, quarantine of what is damaged."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING

from flashverify.campaign.store import disk
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = [
    "MAX_FILE_BYTES",
    "make_folders",
    "open_inside",
    "read_capped",
    "remove_unfinished",
    "set_aside",
    "strange",
    "write_all",
    "write_atomic",
]

MAX_FILE_BYTES = 16 * 1024 * 1024
_UNFINISHED = ".tmp"


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` by `data`: readers see the old bytes or the new ones, also after this process died.

    Args:
        path: its folder exists.
        data: the new bytes.
        durable: wait until the data are on the disk. Otherwise a loss of power may leave neither the old nor the new ones.

    Raises:
        StoreError: the disk is full or refuses; the old file is intact.
    """
    temporary = ""
    try:
        descriptor, temporary = disk.create(path.parent, f".{path.name[:60]}.", _UNFINISHED)
        try:
            write_all(descriptor, data)
            if durable:
                disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        disk.move(temporary, path)
        temporary = ""
        if durable:
            disk.sync_folder(path.parent)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                disk.remove(temporary)
        raise StoreError(f"cannot write {path}: {error}") from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` at the position of the file.

    Raises:
        OSError: the disk refuses; a part may be written.
    """
    while data:
        data = data[disk.write(descriptor, data) :]


def make_folders(path: Path) -> None:
    """Make a folder and those that it lies in, as far as they are not there. Their names are on the disk then.

    Raises:
        OSError: something else stands there, or the disk refuses.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_folders(path.parent)
    try:
        disk.make_folder(path)
    except FileExistsError:
        if not path.is_dir():
            raise
    with contextlib.suppress(PermissionError):  # a folder may take new names from those who cannot read it
        disk.sync_folder(path.parent)


def remove_unfinished(folder: Path, names: Iterable[str]) -> None:
    """Remove what a process that died over `write_atomic` left of files of these names; nobody else writes them meanwhile."""
    wanted = tuple(f".{name}." for name in names)
    try:
        for name in os.listdir(folder):
            if name.startswith(wanted) and name.endswith(_UNFINISHED):
                disk.remove(folder / name)
    except OSError:
        return  # they are in nobody's way


def strange(path: Path, within: Path, *, folder: bool = False) -> str:
    """Why what stands at `path` is not a file, or a folder, of `within`, in words; empty where it is one, or where nothing is there.

    A link may lead out of the folder, and a FIFO waits for ever. Neither is ever followed or opened.
    """
    for each in (*reversed([p for p in path.parents if p.is_relative_to(within) and p != within]), path):
        try:
            mode = each.lstat().st_mode
        except OSError:
            return ""
        if each is not path or folder:
            if not stat.S_ISDIR(mode):
                return f"{each} is no folder"
        elif not stat.S_ISREG(mode):
            return f"{each} is no regular file"
    return ""


def open_inside(path: Path, within: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file below the folder `within`, reached without a link; never waits.

    Raises:
        FileNotFoundError: it is missing, and `flags` do not make it.
        OSError: it cannot be opened, or something else stands there.
    """
    if why := strange(path, within):
        raise OSError(why)
    descriptor = disk.open_file(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return descriptor


def read_capped(path: Path, limit: int = MAX_FILE_BYTES, *, within: Path | None = None) -> bytes:
    """The bytes of `path`.

    Args:
        path: a file.
        limit: bytes that it may have.
        within: the folder that it has to lie in, as a regular file; None is anywhere.

    Raises:
        StoreError: it is missing, unreadable, or larger than `limit` bytes.
    """
    try:
        with path.open("rb") if within is None else os.fdopen(open_inside(path, within), "rb") as file:
            data: bytes = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    if len(data) > limit:
        raise StoreError(f"{path} is larger than {limit} bytes and is not read")
    return data


def set_aside(path: Path, *, move: bool = True) -> Path | None:
    """Move (or copy) what is damaged to the first free name `<name>.corrupt[.N]`; None where the folder refuses. A link is moved itself."""
    for number in range(1000):
        aside = path.with_name(f"{path.name}.corrupt" + (f".{number}" if number else ""))
        if os.path.lexists(aside):
            continue
        try:
            if move:
                disk.move(path, aside)
            else:
                shutil.copy2(path, aside)
        except OSError:
            return None
        return aside
    return None

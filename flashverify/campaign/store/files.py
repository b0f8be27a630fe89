"""Durable files: atomic writes, capped reads, quarantine of what is damaged."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from flashverify.errors import StoreError

__all__ = ["MAX_FILE_BYTES", "read_capped", "set_aside", "write_atomic"]

MAX_FILE_BYTES = 16 * 1024 * 1024


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` by `data`: readers see the old bytes or the new ones, also after a crash.

    Args:
        path: its folder exists.
        data: the new bytes.
        durable: wait until the data are on the disk, against a loss of power.

    Raises:
        StoreError: the disk is full or refuses; the old file is intact.
    """
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:60]}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_capped(path: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of `path`.

    Raises:
        StoreError: it is missing, unreadable, or larger than `limit` bytes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    if len(data) > limit:
        raise StoreError(f"{path} is larger than {limit} bytes and is not read")
    return data


def set_aside(path: Path, *, move: bool = True) -> Path | None:
    """Move (or copy) a damaged file to the first free name `<name>.corrupt[.N]`; None where the folder refuses."""
    for number in range(1000):
        aside = path.with_name(f"{path.name}.corrupt" + (f".{number}" if number else ""))
        if aside.exists():
            continue
        try:
            if move:
                path.rename(aside)
            else:
                shutil.copy2(path, aside)
        except OSError:
            return None
        return aside
    return None

"""The note that names the case being run. The page cache outlives a killed process, so no fsync is needed."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from flashverify.campaign.store import disk
from flashverify.campaign.store.files import read_capped
from flashverify.errors import StoreError

__all__ = ["Inflight", "InflightFile", "read_inflight"]


class Inflight(msgspec.Struct, frozen=True):
    """A case that began and did not end; `subject` is a spec, `name` the subject's name."""

    subject: str
    name: str
    case: str


class InflightFile:
    """Overwrites one small file in place, with one write per case.

    Raises:
        StoreError: the disk refuses.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._descriptor = disk.open_file(Path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}") from error

    def announce(self, note: Inflight) -> None:
        """The case begins."""
        data = msgspec.json.encode(note)
        self._write(b"%08x %08x " % (len(data), zlib.crc32(data)) + data)

    def clear(self) -> None:
        """No case runs."""
        self._write(b"%08x %08x " % (0, 0))

    def _write(self, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                done += disk.write_at(self._descriptor, data[done:], done)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error}") from error


def read_inflight(path: Path) -> Inflight | None:
    """The case in flight, or None where there is none or the note is torn."""
    try:
        data = read_capped(path, within=path.parent)
        length, checksum, text = int(data[:8], 16), int(data[9:17], 16), data[18:]
        if not length or zlib.crc32(text[:length]) != checksum:
            return None
        return msgspec.json.decode(text[:length], type=Inflight)
    except (StoreError, ValueError, RecursionError, msgspec.MsgspecError):
        return None

"""What was read of a piece of results.jsonl, kept in the folder `index` of a run so that the next reader need not parse it.

`results.jsonl` alone is true. A segment is believed where the bytes that it was read from have the same SHA-256 now and where this very
version of flashverify wrote it; any other is made anew. `<run>/index/` may be removed at any time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.store import disk
from flashverify.campaign.store.files import make_folders, open_inside, read_capped, strange, write_atomic
from flashverify.campaign.store.results import MARK_BYTES, RESULTS
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.campaign.store.results import Piece

__all__ = [
    "INDEX",
    "Segment",
    "any_repeated",
    "has_segment",
    "kept_segment",
    "reader_version",
    "remove_unfinished_segments",
    "segment_command",
    "split_marks",
    "write_segment",
]

INDEX = "index"
_READER = "flashverify.report.segment_process"
_MAX_BYTES = 1 << 28
_PACKAGE = Path(__file__).resolve().parents[2]
_BLOCK = 1 << 20
_READ_FROM = ("campaign/store", "case", "judge", "report", "outputs.py", "formats.py")
"""Modules that decide what a segment says of a line."""


class Segment(msgspec.Struct, frozen=True):
    """What was read of a piece: sound lines, each once.

    Attributes:
        version: of the reader, see `reader_version`.
        piece: the bytes of results.jsonl that were read.
        digest: their SHA-256.
        marks: eight bytes for each line, by which repeated ones are known.
        account: what a resumed run needs, see `flashverify.campaign.store.account`.
        aggregate: what a report adds up, see `flashverify.report.stored_aggregate`.
        columns: what a comparison needs of each case, see `flashverify.report.columns`.
    """

    version: str
    piece: tuple[int, int]
    digest: bytes
    marks: bytes
    account: bytes
    aggregate: bytes
    columns: bytes

    def packed(self) -> bytes:
        """As a file: its checksum and MessagePack."""
        data = msgspec.msgpack.encode(self)
        return zlib.crc32(data).to_bytes(4, "little") + data

    @classmethod
    def unpacked(cls, data: bytes) -> Segment:
        """Inverse of `packed`.

        Raises:
            ValueError: these are not the bytes that were packed.
        """
        if len(data) < 4 or zlib.crc32(memoryview(data)[4:]) != int.from_bytes(data[:4], "little"):
            raise ValueError("it does not match its checksum")
        return msgspec.msgpack.decode(memoryview(data)[4:], type=cls)


@functools.cache
def reader_version() -> str:
    """A digest of the code that decides what a segment says: another version of it reads results anew."""
    found = hashlib.sha256(sys.byteorder.encode())
    for name in _READ_FROM:
        for path in sorted((_PACKAGE / name).rglob("*.py")) if (_PACKAGE / name).is_dir() else [_PACKAGE / name]:
            found.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _path(folder: Path, number: int) -> Path:
    return folder / INDEX / f"{number:06d}.segment"


def kept_segment(folder: Path, number: int, piece: Piece) -> Segment | None:
    """The segment that is kept of piece `number` of a run; None where there is none, or where the piece holds other bytes now."""
    try:
        segment = Segment.unpacked(read_capped(_path(folder, number), _MAX_BYTES, within=folder))
        fits = (segment.version, segment.piece) == (reader_version(), piece)
        return segment if fits and segment.digest == _digest(folder, piece) else None
    except (StoreError, OSError, ValueError, msgspec.MsgspecError, RecursionError):
        return None


def has_segment(folder: Path, number: int) -> bool:
    """Whether something is kept of a piece; a reader finds out whether it holds."""
    return os.path.lexists(_path(folder, number))


def segment_command(folder: Path, number: int, piece: Piece) -> list[str]:
    """The command of a process that reads a piece, keeps the segment of it and writes it to stdout; 1 where a line is not sound."""
    return [sys.executable, "-P", "-m", _READER, str(folder.absolute()), *map(str, (number, *piece))]


def _digest(folder: Path, piece: Piece) -> bytes:
    found, at = hashlib.sha256(), piece[0]
    descriptor = open_inside(folder / RESULTS, folder)
    try:
        while at < piece[1] and (data := os.pread(descriptor, min(_BLOCK, piece[1] - at), at)):
            found.update(data)
            at += len(data)
    finally:
        os.close(descriptor)
    return found.digest()


def write_segment(folder: Path, number: int, segment: Segment) -> None:
    """Keep a segment; nothing where the folder refuses, because nothing depends on it."""
    path = _path(folder, number)
    with contextlib.suppress(StoreError, OSError):
        if strange(path, folder) or strange(path.parent, folder, folder=True):
            return
        make_folders(path.parent)
        write_atomic(path, segment.packed(), durable=False)


def remove_unfinished_segments(folder: Path) -> None:
    """Remove what processes that died over a segment left; nobody else keeps segments meanwhile, or makes one in vain."""
    with contextlib.suppress(OSError):
        if not strange(folder / INDEX, folder, folder=True):
            for name in os.listdir(folder / INDEX):
                if name.endswith(".tmp"):
                    disk.remove(folder / INDEX / name)


def split_marks(marks: bytes) -> Iterator[bytes]:
    """The marks of a segment, one by one."""
    return (marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES))


def any_repeated(marks: Iterable[bytes]) -> bool:
    """Whether a line is in two pieces, by the marks of each."""
    import numpy as np

    every = np.sort(np.frombuffer(b"".join(marks), dtype="<u8"))
    return bool((every[1:] == every[:-1]).any())

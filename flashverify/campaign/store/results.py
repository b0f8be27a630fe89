"""The lines of results.jsonl: each is judged by itself, and what is damaged or repeated costs that line alone."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from flashverify.campaign.store.files import open_inside, set_aside, strange, write_atomic
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.errors import StoreError
from flashverify.judge.verdict import CaseResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MARK_BYTES", "MAX_LINE_BYTES", "PIECE_BYTES", "RESULTS", "Bad", "Piece", "pieces", "stored_lines"]

Piece = tuple[int, int]
"""First byte and end of whole lines."""
RESULTS = "results.jsonl"
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_RESULTS_BYTES = 64 * 1024**3
_TAIL = 256
"""Bytes by which sealed lines are told from each other: with the time that a case took, and the checksum of the whole."""
MARK_BYTES = 8
PIECE_BYTES = 1 << 24
"""Bytes of a piece: some 7,000 cases, the work of a second."""
_KEPT_BYTES = 16 * 1024 * 1024
"""Of damaged lines, as much is copied."""


@dataclass(slots=True)
class Bad:
    """Lines that are no results; `repeated` are copies of earlier ones."""

    lines: int = 0
    repeated: int = 0
    kept: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, line: bytes) -> None:
        """Add a damaged line."""
        self.lines += 1
        if self.size < _KEPT_BYTES:
            self.kept.append(line.rstrip(b"\n") + b"\n")
            self.size += len(line)

    def tell(self, folder: Path, problems: list[str]) -> None:
        """Copy damaged lines to `results.jsonl.corrupt`, and say how many lines are left out."""
        if self.repeated:
            _tell(problems, f"{RESULTS}: {self.repeated} repeated line(s) ignored")
        if self.lines:
            _keep_aside(folder, self, problems)


def stored_lines(
    folder: Path,
    problems: list[str],
    *,
    sealed: bool,
    parsed: bool,
    piece: Piece | None = None,
    marks: set[bytes] | None = None,
    bad: Bad | None = None,
) -> Iterator[tuple[CaseResult, bytes]]:
    """The results of a run folder with their lines, in the order of the file; streamed.

    Damaged lines are copied to `results.jsonl.corrupt`. They, repeated ones and what ends the file early are told in `problems`.

    Args:
        folder: of the run.
        problems: in words; each once.
        sealed: whether each line has to have a checksum.
        parsed: whether the text of a case has to be one in lines without checksum too.
        piece: the lines that are read; None is all.
        marks: gets one of `MARK_BYTES` for each sealed line, by which repeated ones are known.
        bad: gets the lines that are left out, for the caller to tell; None tells them.

    Raises:
        StoreError: the file cannot be read.
    """
    found, seen = Bad() if bad is None else bad, set[bytes]() if marks is None else marks
    try:
        for line in _lines(folder, problems, piece):
            try:
                if len(line) > MAX_LINE_BYTES:
                    raise DamagedRecordError("it is too long")
                result = decode(line, CaseResult, sealed=sealed, parsed=parsed)
            except DamagedRecordError:
                found.add(line)
                continue
            if sealed:  # without the mark of a list or a batch two lines may be alike by chance
                mark = hashlib.blake2b(line[-_TAIL:], digest_size=MARK_BYTES).digest()
                if mark in seen:
                    found.repeated += 1
                    continue
                seen.add(mark)
            yield result, line
    except FileNotFoundError:
        return
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        _tell(problems, f"{RESULTS}.gz: what follows is damaged and ignored: {error}")
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {folder / RESULTS}: {error}") from error
    if bad is None:
        found.tell(folder, problems)


def _tell(problems: list[str], problem: str) -> None:
    if problem not in problems:
        problems.append(problem)


def _keep_aside(folder: Path, bad: Bad, problems: list[str]) -> None:
    _tell(problems, f"{RESULTS}: {bad.lines} damaged line(s) ignored")
    data, aside = b"".join(bad.kept), folder / f"{RESULTS}.corrupt"
    try:
        if strange(aside, folder):
            set_aside(aside)
        if not aside.exists() or aside.read_bytes() != data:
            write_atomic(aside, data)
    except (StoreError, OSError) as error:
        _tell(problems, str(error))


def pieces(folder: Path) -> list[Piece]:
    """Pieces of the results of a run folder, of about `PIECE_BYTES`; empty where they are packed, or no more than two such pieces.

    The pieces of a file that grows stay the same but for the last one.
    """
    size = PIECE_BYTES
    try:
        file = os.fdopen(open_inside(folder / RESULTS, folder), "rb")
    except OSError:
        return []
    with file:
        end = os.fstat(file.fileno()).st_size
        cuts = [0]
        while end > 2 * size and cuts[-1] < end:
            file.seek(min(end, cuts[-1] + size))
            file.readline()
            cuts.append(file.tell())
    return list(itertools.pairwise(cuts))


def _lines(folder: Path, problems: list[str], piece: Piece | None) -> Iterator[bytes]:
    """Lines without blank ones; of one that is too long the beginning, longer than the cap."""
    plain, packed = folder / RESULTS, folder / f"{RESULTS}.gz"
    found = plain if os.path.lexists(plain) or not os.path.lexists(packed) else packed
    if why := strange(found, folder):
        aside = set_aside(found)
        problems.append(f"{why} and is not read" + (f", kept as {aside.name}" if aside else ""))
        return
    begin, end = piece or (0, MAX_RESULTS_BYTES + 1)
    total = 0
    with os.fdopen(open_inside(found, folder), "rb") as raw, _unpacked(raw, found is packed) as file:
        file.seek(begin)
        while begin + total < end and (line := file.readline(MAX_LINE_BYTES + 1)):
            rest = line
            while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                total += len(rest)
                _check_size(total)
                rest = file.readline(MAX_LINE_BYTES + 1)
            total += len(rest)
            _check_size(total)
            if line.strip():
                yield line


def _unpacked(raw: BinaryIO, packed: bool) -> BinaryIO:
    return gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[return-value]


def _check_size(total: int) -> None:
    if total > MAX_RESULTS_BYTES:
        raise StoreError(f"results are larger than {MAX_RESULTS_BYTES} bytes and are not read")

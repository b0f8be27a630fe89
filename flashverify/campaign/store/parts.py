"""The results of a run that goes on: parsed, or as accounts of the pieces that the index has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from flashverify.campaign.store.account import Account
from flashverify.campaign.store.files import open_inside
from flashverify.campaign.store.results import MAX_LINE_BYTES, RESULTS, Bad, pieces
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.campaign.store.segments import any_repeated, kept_segment, split_marks
from flashverify.campaign.store.side_by_side import side_by_side
from flashverify.errors import StoreError
from flashverify.judge.verdict import CaseResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.campaign.store.results import Piece

__all__ = ["StoredLines", "StoredPart", "read_parts"]


class StoredLines:
    """Single lines of results.jsonl of a run with checksums, read where they begin."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESULTS
        try:
            self._file: BinaryIO = os.fdopen(open_inside(self._path, folder), "rb")
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error}") from error

    def at(self, offset: int) -> CaseResult:
        """The result whose line begins at that byte.

        Raises:
            StoreError: it cannot be read any more.
        """
        try:
            self._file.seek(offset)
            return decode(self._file.readline(MAX_LINE_BYTES + 1), CaseResult, sealed=True)
        except (OSError, DamagedRecordError) as error:
            raise StoreError(f"cannot read {self._path} at byte {offset:,}: {error}") from error

    def close(self) -> None:
        """Release the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A piece of the results, of which the index has an account."""

    account: Account
    begin: int
    lines: StoredLines

    def result(self, number: int) -> CaseResult:
        """A result of it."""
        return self.lines.at(self.begin + self.account.first_bytes[number])

    def marked(self, origin: int) -> Iterator[CaseResult]:
        """The results of an origin."""
        return (self.result(n) for n, mark in enumerate(self.account.origin_numbers) if mark == origin)


def read_parts(stored: StoredRun) -> Iterator[CaseResult | StoredPart]:
    """What is stored, in its order. Every line is verified: by its own checksum, or by the digest of its piece.

    Raises:
        StoreError: the results cannot be read.
    """
    found = pieces(stored.path) if stored.record.sealed else []
    accounts = list(side_by_side(partial(_account, stored.path), enumerate(found)))
    marks = [known[1] for known in accounts if known is not None]
    if not marks or any_repeated(marks):
        yield from stored.results(parsed=True)
        return
    seen = {mark for each in marks for mark in split_marks(each)} if None in accounts else set()
    bad, lines = Bad(), StoredLines(stored.path)
    try:
        for piece, known in zip(found, accounts, strict=True):
            if known is None:
                yield from (result for result, _ in stored.piece(piece, seen, bad))
            else:
                yield StoredPart(known[0], piece[0], lines)
    finally:
        lines.close()
    bad.tell(stored.path, stored.problems)


def _account(folder: Path, numbered: tuple[int, Piece]) -> tuple[Account, bytes] | None:
    """What the index has of a piece: its account and the marks of its lines."""
    segment = kept_segment(folder, *numbered)
    return None if segment is None else (Account.unpacked(segment.account), segment.marks)

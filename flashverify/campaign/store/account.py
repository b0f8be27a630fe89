"""What a resumed run needs of a piece of its results: counts, where each result belongs, and which lines it has to read again."""

from __future__ import annotations

import functools
from array import array
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.store.counts import Counts
from flashverify.campaign.store.origins import batch_of
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from flashverify.judge.verdict import CaseResult

__all__ = ["Account", "AccountBuilder", "Origin"]


class Origin(msgspec.Struct, frozen=True):
    """Results that are marked alike.

    Attributes:
        text: the mark.
        count: results.
        cases: texts of their cases; empty where the mark is a batch.
    """

    text: str
    count: int
    cases: tuple[str, ...]


class Account(msgspec.Struct, frozen=True, dict=True):
    """Of a piece.

    Attributes:
        counts: of its results.
        origins: in the order of their first result.
        offsets: first byte of each line within the piece, as unsigned 32 bits.
        marked: the number of its origin, likewise.
        failing: 1 where a result has a failure, a byte each.
    """

    counts: Counts
    origins: tuple[Origin, ...]
    offsets: bytes
    marked: bytes
    failing: bytes

    @classmethod
    def unpacked(cls, data: bytes) -> Account:
        """Of a segment.

        Raises:
            StoreError: it is none.
        """
        try:
            found = msgspec.msgpack.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(f"an account of results cannot be read: {error}") from error
        return found

    @functools.cached_property
    def first_bytes(self) -> array[int]:
        """`offsets` as numbers."""
        return _numbers(self.offsets)

    @functools.cached_property
    def origin_numbers(self) -> array[int]:
        """`marked` as numbers."""
        return _numbers(self.marked)


class AccountBuilder:
    """Adds up an account, result by result."""

    def __init__(self) -> None:
        self._counts = Counts()
        self._numbers: dict[str, int] = {}
        self._cases: list[list[str]] = []
        self._offsets, self._marked, self._failing = array("I"), array("I"), bytearray()

    def add(self, result: CaseResult, offset: int) -> None:
        """Add a result whose line begins at that byte of the piece."""
        self._counts.count(result)
        number = self._numbers.setdefault(result.origin, len(self._numbers))
        if number == len(self._cases):
            self._cases.append([])
        if batch_of(result.origin) is None:
            self._cases[number].append(result.case)
        self._offsets.append(offset)
        self._marked.append(number)
        self._failing.append(bool(result.failures))

    def packed(self) -> bytes:
        """The account for a segment."""
        counted = [0] * len(self._cases)
        for number in self._marked:
            counted[number] += 1
        origins = zip(self._numbers, counted, self._cases, strict=True)
        found = Account(
            self._counts,
            tuple(Origin(text, count, tuple(cases)) for text, count, cases in origins),
            self._offsets.tobytes(),
            self._marked.tobytes(),
            bytes(self._failing),
        )
        return msgspec.msgpack.encode(found)


def _numbers(data: bytes) -> array[int]:
    found = array("I")
    found.frombytes(data)
    return found

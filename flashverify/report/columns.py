"""Of each result of a piece what a comparison needs, as columns: some two hundred bytes a case."""

from __future__ import annotations

import hashlib
import math
from array import array
from typing import TYPE_CHECKING

import msgspec

from flashverify.errors import StoreError
from flashverify.judge.verdict import Status, from_hex
from flashverify.report.aggregate import outcome
from flashverify.report.axes import dtype_of
from flashverify.report.group import stats_ratio

if TYPE_CHECKING:
    from flashverify.judge.verdict import CaseResult

__all__ = ["STATUSES", "VOID", "Columns", "ColumnsBuilder", "Identity", "Place"]

VOID = -1.0
"""In place of the ratio of an output of which no element was judged; ratios are never negative."""
STATUSES = tuple(Status)
Place = tuple[str, str]
"""Output and mode."""
Identity = tuple[str, str, str]
"""Check, error and output: two failures of a case with the same identity are the same failure."""


class Columns(msgspec.Struct, frozen=True):
    """A row a result. Tables have each text once; columns are numbers, in the order of bytes of this machine.

    Attributes:
        subjects, dtypes: tables.
        layouts: table of the outputs and modes that a result has ratios of.
        failures: table of what verdicts say that failed.
        evidence: subjects, with what a case of each that was not refused ran on.
        keys: 16 bytes, a digest of the case.
        offsets: first byte of the line within the piece, 32 bits; likewise the numbers in the four tables.
        subject, dtype, layout, failed: numbers in the tables.
        statuses: numbers in `STATUSES`, a byte each; `covering` is 1 where the case counts as coverage.
        values: worst ratios as float64, those of a result one after the other as its layout names them; `VOID` where nothing was judged.
        signed: mean signed ratios, likewise; NaN where there is none.
    """

    subjects: tuple[str, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[tuple[Place, ...], ...]
    failures: tuple[tuple[Identity, ...], ...]
    evidence: tuple[tuple[str, str], ...]
    keys: bytes
    offsets: bytes
    subject: bytes
    dtype: bytes
    layout: bytes
    failed: bytes
    statuses: bytes
    covering: bytes
    values: bytes
    signed: bytes

    @classmethod
    def unpacked(cls, data: bytes) -> Columns:
        """Of a segment.

        Raises:
            StoreError: they are none.
        """
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StoreError(f"columns of results cannot be read: {error}") from error


class ColumnsBuilder:
    """Adds up columns, result by result."""

    def __init__(self) -> None:
        self._subjects: dict[str, int] = {}
        self._dtypes: dict[str, int] = {}
        self._layouts: dict[tuple[Place, ...], int] = {}
        self._failures: dict[tuple[Identity, ...], int] = {}
        self._evidence: dict[tuple[str, str], None] = {}
        self._keys, self._statuses, self._covering = bytearray(), bytearray(), bytearray()
        self._offsets, self._subject, self._dtype = array("I"), array("I"), array("I")
        self._layout, self._failed = array("I"), array("I")
        self._values, self._signed = array("d"), array("d")

    def add(self, result: CaseResult, offset: int) -> None:
        """Add a result whose line begins at that byte of the piece."""
        if result.evidence and result.unsupported is None:
            self._evidence[result.subject, result.evidence] = None
        layout = tuple([(s.output, s.mode) for s in result.stats])
        failed = tuple([(v.check, v.error, v.output) for v in result.failures])
        self._keys += hashlib.blake2b(result.case.encode(), digest_size=16).digest()
        self._offsets.append(offset)
        self._subject.append(self._subjects.setdefault(result.subject, len(self._subjects)))
        self._dtype.append(self._dtypes.setdefault(dtype_of(result.case), len(self._dtypes)))
        self._layout.append(self._layouts.setdefault(layout, len(self._layouts)))
        self._failed.append(self._failures.setdefault(failed, len(self._failures)))
        self._statuses.append(STATUSES.index(outcome(result)))
        self._covering.append(result.coverage)
        for stats in result.stats:
            ratio = stats_ratio(stats)
            self._values.append(VOID if ratio is None else math.nan if ratio < 0 else ratio)
            self._signed.append(from_hex(stats.signed) if stats.signed else math.nan)

    def columns(self) -> Columns:
        """What was added."""
        return Columns(
            subjects=tuple(self._subjects),
            dtypes=tuple(self._dtypes),
            layouts=tuple(self._layouts),
            failures=tuple(self._failures),
            evidence=tuple(self._evidence),
            keys=bytes(self._keys),
            offsets=self._offsets.tobytes(),
            subject=self._subject.tobytes(),
            dtype=self._dtype.tobytes(),
            layout=self._layout.tobytes(),
            failed=self._failed.tobytes(),
            statuses=bytes(self._statuses),
            covering=bytes(self._covering),
            values=self._values.tobytes(),
            signed=self._signed.tobytes(),
        )

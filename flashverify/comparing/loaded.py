"""The results of a run as columns: what a comparison computes with. A case's own text and messages are read where they are needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.campaign.store.parts import StoredLines
from flashverify.campaign.store.segments import Segment
from flashverify.report.columns import Columns, ColumnsBuilder
from flashverify.report.pieces import RepeatedError, read_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from flashverify.campaign.store.reader import StoredRun
    from flashverify.judge.verdict import CaseResult
    from flashverify.report.columns import Identity, Place

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["Loaded", "load"]

_TABLES = {"subject": "subjects", "dtype": "dtypes", "layout": "layouts", "failed": "failures"}


@dataclass
class Loaded:
    """Rows of columns as `flashverify.report.columns` describes them, with tables of the whole run.

    Attributes:
        keys: two numbers of 64 bits a row.
        places: first byte of each line of the file, or -1 - n of the n-th result in `kept`.
        starts: where the ratios of each row begin, and where those of the last one end.
    """

    path: Path
    subjects: list[str]
    dtypes: list[str]
    layouts: list[tuple[Place, ...]]
    failures: list[tuple[Identity, ...]]
    evidence: dict[str, set[str]]
    keys: NDArray[np.uint64]
    places: Integers
    subject: NDArray[np.uint32]
    dtype: NDArray[np.uint32]
    layout: NDArray[np.uint32]
    failed: NDArray[np.uint32]
    statuses: NDArray[np.uint8]
    covering: NDArray[np.uint8]
    starts: Integers
    values: Floats
    signed: Floats
    kept: list[CaseResult] = field(default_factory=list)
    lines: StoredLines | None = None

    def __len__(self) -> int:
        return len(self.places)

    def result(self, row: int) -> CaseResult:
        """The whole result of a row.

        Raises:
            StoreError: it cannot be read any more.
        """
        place = int(self.places[row])
        if place < 0:
            return self.kept[-1 - place]
        if self.lines is None:
            self.lines = StoredLines(self.path)
        return self.lines.at(place)

    def close(self) -> None:
        """Release the file."""
        if self.lines is not None:
            self.lines.close()


def load(run: StoredRun) -> Loaded:
    """The results of a run; of a case that it holds several times the last one.

    Raises:
        StoreError: they cannot be read.
    """
    try:
        return _Joiner(run).loaded(read_pieces(run))
    except RepeatedError:
        return _Joiner(run).loaded(iter([((0, 0), run.results())]))


class _Joiner:
    """Puts the columns of pieces together."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run
        self._kept: list[CaseResult] = []
        self._tables: dict[str, dict[Any, int]] = {name: {} for name in _TABLES}
        self._parts: dict[str, list[NDArray[Any]]] = {}

    def loaded(self, pieces: Iterator[tuple[tuple[int, int], Segment | Iterator[CaseResult]]]) -> Loaded:
        evidence: dict[str, set[str]] = {}
        self._add(ColumnsBuilder().columns(), np.empty(0, np.int64))
        for (begin, _), part in pieces:
            if isinstance(part, Segment):
                columns = Columns.unpacked(part.columns)
                places = np.frombuffer(columns.offsets, np.uint32).astype(np.int64) + begin
            else:
                columns, places = self._read(part)
            for subject, ran_on in columns.evidence:
                evidence.setdefault(subject, set()).add(ran_on)
            self._add(columns, places)
        whole = {name: np.concatenate(self._parts.pop(name)) for name in list(self._parts)}
        sizes = np.array([len(layout) for layout in self._tables["layout"]], np.int64)[whole["layout"]]
        tables = {_TABLES[name]: list(table) for name, table in self._tables.items()}
        columns_and_tables: dict[str, Any] = {**whole, **tables}
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return Loaded(path=self._run.path, evidence=evidence, starts=starts, kept=self._kept, **columns_and_tables)

    def _read(self, results: Iterator[CaseResult]) -> tuple[Columns, Integers]:
        """The columns of results whose lines are not known, which are kept as far as they are needed."""
        builder, first = ColumnsBuilder(), len(self._kept)
        for result in results:
            builder.add(result, 0)
            self._kept.append(_bare(result))
        return builder.columns(), -1 - np.arange(first, len(self._kept))

    def _add(self, columns: Columns, places: Integers) -> None:
        """Add a piece; the numbers of its tables become those of the tables of the whole."""
        found: dict[str, NDArray[Any]] = {
            "keys": np.frombuffer(columns.keys, np.uint64).reshape(-1, 2),
            "places": places,
            "statuses": np.frombuffer(columns.statuses, np.uint8),
            "covering": np.frombuffer(columns.covering, np.uint8),
            "values": np.frombuffer(columns.values),
            "signed": np.frombuffer(columns.signed),
        }
        for name, of_piece in _TABLES.items():
            table = self._tables[name]
            numbers = [table.setdefault(each, len(table)) for each in getattr(columns, of_piece)]
            found[name] = np.array(numbers, np.uint32)[np.frombuffer(getattr(columns, name), np.uint32)]
        for name, column in found.items():
            self._parts.setdefault(name, []).append(column)


def _bare(result: CaseResult) -> CaseResult:
    """A result with its case and its failures alone."""
    return type(result)(result.case, result.subject, result.evidence, result.failures)

"""Reading a run folder. What is damaged is set aside under `*.corrupt` and named in `problems`, never trusted, never deleted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flashverify.campaign.store.files import read_capped, set_aside, strange
from flashverify.campaign.store.results import RESULTS, stored_lines
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.errors import StoreError
from flashverify.judge.record import FORMAT, FindingRecord, RunRecord, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.store.results import Bad, Piece
    from flashverify.judge.verdict import CaseResult

__all__ = ["FINDING", "FINDINGS", "RESULTS", "RUN", "SUMMARY", "StoredFinding", "StoredRun", "open_run"]

RUN, SUMMARY, FINDINGS, FINDING = "run.json", "summary.json", "findings", "finding.json"
_Record = TypeVar("_Record", RunRecord, Summary, FindingRecord)


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A finding and the folder that holds it."""

    path: Path
    record: FindingRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run folder, opened.

    Args:
        path: the folder.
        record: its header.
        findings: in the order of their first sight.
        summary: None where the run did not end.
        problems: what was damaged, in words; grows while `results` is read.
    """

    path: Path
    record: RunRecord
    findings: tuple[StoredFinding, ...]
    summary: Summary | None
    problems: list[str] = field(default_factory=list)

    def results(self, *, parsed: bool = False) -> Iterator[CaseResult]:
        """The case results, in the order of the file; streamed.

        Damaged lines are skipped, copied to `results.jsonl.corrupt` and counted in `problems`, as are repeated ones.

        Args:
            parsed: skip lines of other versions too whose case is none; lines of this one are checked by their checksum.

        Raises:
            StoreError: the file cannot be read.
        """
        for result, _ in self.lines(parsed=parsed):
            yield result

    def piece(self, piece: Piece, marks: set[bytes], bad: Bad) -> Iterator[tuple[CaseResult, bytes]]:
        """Those of a piece of the file with their lines, see `flashverify.campaign.store.results.pieces`.

        Args:
            piece: of a run with checksums.
            marks: of the lines so far; gets one for each line.
            bad: gets what is left out, which nobody is told.
        """
        return stored_lines(self.path, self.problems, sealed=True, parsed=False, piece=piece, marks=marks, bad=bad)

    def lines(self, *, parsed: bool = False) -> Iterator[tuple[CaseResult, bytes]]:
        """The same with the line of each."""
        return stored_lines(self.path, self.problems, sealed=self.record.sealed, parsed=parsed)


def open_run(path: Path | str) -> StoredRun:
    """Open a run folder.

    Raises:
        StoreError: it is no run folder, its header is damaged, or it was written by a newer format.
    """
    folder = Path(path)
    try:
        if not os.path.lexists(folder / RUN):
            raise StoreError(f"{folder} is not a run folder: it has no {RUN}")
    except ValueError as error:
        raise StoreError(f"{str(path)!r} is not a run folder: {error}") from error
    problems: list[str] = []
    record = _read(folder / RUN, folder, RunRecord, problems, move=False)
    if record is None:
        raise StoreError(problems[0])
    if record.format > FORMAT:
        raise StoreError(f"{folder / RUN} has format {record.format}; this version reads up to {FORMAT}")
    sealed = record.sealed
    present = os.path.lexists(folder / SUMMARY)
    summary = _read(folder / SUMMARY, folder, Summary, problems, sealed=sealed) if present else None
    findings = []
    for file in _finding_files(folder, problems):
        if (found := _read(file, folder, FindingRecord, problems, sealed=sealed)) is not None:
            findings.append(StoredFinding(file.parent, found))
    findings.sort(key=lambda finding: (finding.record.seconds, finding.record.key))
    return StoredRun(path=folder, record=record, findings=tuple(findings), summary=summary, problems=problems)


def _finding_files(folder: Path, problems: list[str]) -> Iterator[Path]:
    """The finding.json of each finding; what is no folder of this run is named and left alone."""
    if why := strange(folder / FINDINGS, folder, folder=True):
        problems.append(f"{why} and is not read")
        return
    try:
        names = sorted(os.listdir(folder / FINDINGS))
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"cannot read {folder / FINDINGS}: {error}")
        return
    for name in names:
        each = folder / FINDINGS / name
        if each.is_symlink():
            problems.append(f"{each} is a link and is not followed")
        elif os.path.lexists(each / FINDING):
            yield each / FINDING


def _read(
    path: Path, folder: Path, kind: type[_Record], problems: list[str], *, move: bool = True, sealed: bool = False
) -> _Record | None:
    try:
        return decode(read_capped(path, within=folder), kind, sealed=sealed)
    except DamagedRecordError as error:
        problem = f"{path} is damaged ({error})"
    except StoreError as error:
        problem = str(error)
        if not strange(path, folder):  # it is a file, and cannot be read now
            problems.append(problem)
            return None
    aside = set_aside(path, move=move) if move or not strange(path, folder) else None
    problems.append(f"{problem}, " + (f"kept as {aside.name}" if aside else "and could not be set aside"))
    return None

"""Reading a run folder. What is damaged is set aside under `*.corrupt` and named in `problems`, never trusted, never deleted."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from flashverify.campaign.store.files import read_capped, set_aside, write_atomic
from flashverify.errors import StoreError
from flashverify.judge.record import FORMAT, FindingRecord, RunRecord, Summary
from flashverify.judge.verdict import CaseResult

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FINDING", "FINDINGS", "RESULTS", "RUN", "SUMMARY", "StoredFinding", "StoredRun", "open_run"]

RUN, RESULTS, SUMMARY, FINDINGS, FINDING = "run.json", "results.jsonl", "summary.json", "findings", "finding.json"
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_RESULTS_BYTES = 64 * 1024**3
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

    def results(self) -> Iterator[CaseResult]:
        """The case results, in the order of the file; streamed.

        Damaged lines are skipped, copied to `results.jsonl.corrupt` and counted in `problems`.

        Raises:
            StoreError: the file cannot be read.
        """
        bad: list[bytes] = []
        try:
            with _open_results(self.path) as file:
                for line in _lines(file):
                    try:
                        yield CaseResult.from_json(line)
                    except (msgspec.MsgspecError, UnicodeDecodeError):
                        bad.append(line)
        except FileNotFoundError:
            return
        except (OSError, EOFError, zlib.error) as error:
            raise StoreError(f"cannot read {self.path / RESULTS}: {error}") from error
        if bad:
            self._keep_aside(bad)

    def _keep_aside(self, bad: list[bytes]) -> None:
        problem = f"{RESULTS}: {len(bad)} damaged line(s) ignored"
        if problem not in self.problems:
            self.problems.append(problem)
        data = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in bad)
        aside = self.path / f"{RESULTS}.corrupt"
        try:
            if not aside.exists() or aside.read_bytes() != data:
                write_atomic(aside, data)
        except (StoreError, OSError) as error:
            self.problems.append(str(error))


def _open_results(folder: Path) -> BinaryIO:
    plain = folder / RESULTS
    if not plain.exists() and (packed := folder / f"{RESULTS}.gz").exists():
        return gzip.open(packed, "rb")  # type: ignore[return-value]
    return plain.open("rb")


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without blank ones; one longer than the cap comes in pieces, which are no JSON and hence damaged."""
    total = 0
    while line := file.readline(MAX_LINE_BYTES):
        total += len(line)
        if total > MAX_RESULTS_BYTES:
            raise StoreError(f"results are larger than {MAX_RESULTS_BYTES} bytes and are not read")
        if line.strip():
            yield line


def open_run(path: Path | str) -> StoredRun:
    """Open a run folder.

    Raises:
        StoreError: it is no run folder, its header is damaged, or it was written by a newer format.
    """
    folder = Path(path)
    if not (folder / RUN).is_file():
        raise StoreError(f"{folder} is not a run folder: it has no {RUN}")
    problems: list[str] = []
    record = _read(folder / RUN, RunRecord, problems, move=False)
    if record is None:
        raise StoreError(problems[0])
    if record.format > FORMAT:
        raise StoreError(f"{folder / RUN} has format {record.format}; this version reads up to {FORMAT}")
    summary = _read(folder / SUMMARY, Summary, problems) if (folder / SUMMARY).exists() else None
    findings = []
    for file in sorted((folder / FINDINGS).glob(f"*/{FINDING}")):
        if (found := _read(file, FindingRecord, problems)) is not None:
            findings.append(StoredFinding(file.parent, found))
    findings.sort(key=lambda finding: (finding.record.seconds, finding.record.key))
    return StoredRun(path=folder, record=record, findings=tuple(findings), summary=summary, problems=problems)


def _read(path: Path, kind: type[_Record], problems: list[str], *, move: bool = True) -> _Record | None:
    try:
        return msgspec.json.decode(read_capped(path), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        aside = set_aside(path, move=move)
        kept = f"kept as {aside.name}" if aside else "and could not be set aside"
        problems.append(f"{path} is damaged ({error}), {kept}")
    except StoreError as error:
        problems.append(str(error))
    return None

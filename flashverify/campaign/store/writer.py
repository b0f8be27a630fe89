"""The run folder: everything that a campaign leaves on disk (layout: `flashverify.judge.record`)."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock, Timeout

from flashverify.campaign.store.files import read_capped, write_atomic
from flashverify.campaign.store.reader import (
    FINDING,
    FINDINGS,
    RESULTS,
    RUN,
    SUMMARY,
    StoredFinding,
    StoredRun,
    open_run,
)
from flashverify.campaign.store.reproduction import case_json, repro_script
from flashverify.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flashverify.judge.record import FindingRecord, RunRecord, Summary
    from flashverify.judge.verdict import CaseResult, Key

__all__ = ["RunStore", "StoredFinding", "StoredRun", "finding_name", "open_run"]

_PROGRESS, _CASE, _SCRIPT = "progress.json", "case.json", "repro.py"


class Claims(msgspec.Struct, frozen=True):
    """How many batches have been handed out; a resumed campaign begins after them."""

    batches: int = 0
    seconds: float = 0.0


def finding_name(key: Key) -> str:
    """A folder name for a bucket: readable, plain ASCII, different for different keys, never outside its folder."""
    slug = "".join(c if c.isascii() else "_" for c in key.slug())[:80].strip(".") or "finding"
    return f"{slug}-{hashlib.blake2b(msgspec.json.encode(key), digest_size=4).hexdigest()}"


class RunStore:
    """Writes a run folder; one process at a time.

    Every case result is in the operating system's hands when `append` returns, and every finding is on the disk when
    `write_finding` returns, so `kill -9` costs no more than the case in flight.

    Raises:
        StoreError: the folder cannot be written.
        UsageError: another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            (path / FINDINGS).mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / ".lock")
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"out={str(path)!r} is not accepted: another campaign is writing to it") from None
        except OSError as error:
            raise StoreError(f"cannot write to {path}: {error}") from error
        self._results = -1

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run already."""
        return (self.path / RUN).exists()

    def read(self) -> StoredRun:
        """What the folder holds now."""
        return open_run(self.path)

    def write_header(self, record: RunRecord) -> None:
        """Write or replace run.json."""
        write_atomic(self.path / RUN, _pretty(record))

    def append(self, result: CaseResult) -> None:
        """Append one line to results.jsonl."""
        line = result.to_json() + b"\n"
        try:
            if self._results < 0:
                self._results = self._open_results()
            while line:
                line = line[os.write(self._results, line) :]
        except OSError as error:
            raise StoreError(f"cannot write {self.path / RESULTS}: {error}") from error

    def _open_results(self) -> int:
        """Open for appending; a last line torn by a kill is ended, so that it alone is damaged."""
        path = self.path / RESULTS
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.write(descriptor, b"\n")
        return descriptor

    def sort_results(self, order: dict[tuple[str, str], int]) -> None:
        """Rewrite results.jsonl in the order given by (subject, case); results that it does not name come last."""
        results = list(self.read().results())
        results.sort(key=lambda r: order.get((r.subject, r.case), len(order)))
        self._close_results()
        write_atomic(self.path / RESULTS, b"".join(r.to_json() + b"\n" for r in results))

    def write_finding(self, record: FindingRecord) -> Path:
        """Write a finding's folder; finding.json comes last and makes it valid."""
        folder = self.finding_path(record.key)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error}") from error
        write_atomic(folder / _CASE, case_json(record))
        write_atomic(folder / _SCRIPT, repro_script(record))
        write_atomic(folder / FINDING, _pretty(record))
        return folder

    def remove_finding(self, key: Key) -> None:
        """Remove the folder of a finding that another one holds; finding.json goes first and makes it no finding."""
        folder = self.finding_path(key)
        try:
            for name in (FINDING, _CASE, _SCRIPT):
                (folder / name).unlink(missing_ok=True)
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()
        except OSError as error:
            raise StoreError(f"cannot remove {folder}: {error}") from error

    def finding_path(self, key: Key) -> Path:
        """The folder of a bucket."""
        return self.path / FINDINGS / finding_name(key)

    def claims(self) -> Claims:
        """The batches handed out so far; none where the note is missing or damaged, which repeats seeds, not findings."""
        try:
            return msgspec.json.decode(read_capped(self.path / _PROGRESS), type=Claims)
        except (StoreError, msgspec.MsgspecError, UnicodeDecodeError):
            return Claims()

    def claim(self, batches: int, seconds: float) -> None:
        """Note that `batches` batches have been handed out, before a worker gets the last of them."""
        write_atomic(self.path / _PROGRESS, msgspec.json.encode(Claims(batches, round(seconds, 3))), durable=False)

    def inflight_path(self, worker: int) -> Path:
        """Where worker number `worker` announces its case."""
        folder = self.path / "inflight"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error}") from error
        return folder / f"{worker}.json"

    def write_summary(self, summary: Summary) -> None:
        """Write summary.json, after forcing the results to the disk."""
        self._close_results()
        write_atomic(self.path / SUMMARY, _pretty(summary))

    def forget_summary(self) -> None:
        """Remove the summary of an interrupted run that goes on."""
        (self.path / SUMMARY).unlink(missing_ok=True)

    def _close_results(self) -> None:
        if self._results >= 0:
            descriptor, self._results = self._results, -1
            try:
                os.fsync(descriptor)
            except OSError as error:
                raise StoreError(f"cannot write {self.path / RESULTS}: {error}") from error
            finally:
                os.close(descriptor)

    def close(self, leftovers: Iterable[Path] = ()) -> None:
        """Release the folder and remove notes that are of no more use."""
        try:
            self._close_results()
            for path in leftovers:
                path.unlink(missing_ok=True)
        finally:
            self._lock.release()


def _pretty(record: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"

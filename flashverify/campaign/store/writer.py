"""The run folder: everything that a campaign leaves on disk (layout: `flashverify.judge.record`)."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

import msgspec
from filelock import FileLock, Timeout

from flashverify.campaign.store import disk
from flashverify.campaign.store.files import make_folders, open_inside, write_all, write_atomic
from flashverify.campaign.store.notes import LISTS, PROGRESS, Claims, Lists, read_claims, read_lists
from flashverify.campaign.store.opening import CASE, INFLIGHT, SCRIPT, clear_the_way, forget_unfinished
from flashverify.campaign.store.reader import (
    FINDING,
    FINDINGS,
    RUN,
    SUMMARY,
    StoredFinding,
    StoredRun,
    open_run,
)
from flashverify.campaign.store.reproduction import case_json, repro_script
from flashverify.campaign.store.results import RESULTS
from flashverify.campaign.store.sealing import pretty, seal
from flashverify.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flashverify.judge.record import FindingRecord, RunRecord, Summary
    from flashverify.judge.verdict import CaseResult, Key

__all__ = ["RunStore", "StoredFinding", "StoredRun", "finding_name", "open_run"]


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
        self.problems: list[str] = []
        try:
            make_folders(path)
            self.problems += clear_the_way(path)
            make_folders(path / FINDINGS)
            self._lock = FileLock(path / ".lock")
            self._lock.acquire(timeout=0)
            forget_unfinished(path)
        except Timeout:
            raise UsageError(f"out={str(path)!r} is not accepted: another campaign is writing to it") from None
        except OSError as error:
            raise StoreError(f"cannot write to {path}: {error}") from error
        self._results = -1

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run already.

        Raises:
            UsageError: it holds parts of one, without a header.
        """
        if (self.path / RUN).exists():
            return True
        if (self.path / RESULTS).exists() or any((self.path / FINDINGS).iterdir()):
            raise UsageError(
                f"out={str(self.path)!r} is not accepted: it holds results without {RUN}; name a new folder"
            )
        return False

    def read(self) -> StoredRun:
        """What the folder holds now."""
        return open_run(self.path)

    def write_header(self, record: RunRecord) -> None:
        """Write or replace run.json."""
        write_atomic(self.path / RUN, pretty(record))

    def append(self, result: CaseResult) -> None:
        """Append one line to results.jsonl."""
        line = seal(result.to_json()) + b"\n"
        try:
            if self._results < 0:
                self._results = self._open_results()
            write_all(self._results, line)
        except OSError as error:
            raise StoreError(f"cannot write {self.path / RESULTS}: {error}") from error

    def _open_results(self) -> int:
        """Open for appending; a last line torn by a kill is ended, so that it alone is damaged."""
        path = self.path / RESULTS
        new = not path.exists()
        descriptor = open_inside(path, self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            write_all(descriptor, b"\n")
        if new:
            disk.sync_folder(self.path)
        return descriptor

    def sort_results(self, order: dict[tuple[str, str], int]) -> None:
        """Rewrite results.jsonl in the order given by (origin, case); results that it does not name come last."""
        lines = list(self.read().lines())
        lines.sort(key=lambda each: order.get((each[0].origin, each[0].case), len(order)))
        self._close_results()
        write_atomic(self.path / RESULTS, b"".join(line.rstrip(b"\n") + b"\n" for _, line in lines))

    def write_finding(self, record: FindingRecord) -> Path:
        """Write a finding's folder; finding.json comes last and makes it valid."""
        folder = self.finding_path(record.key)
        try:
            make_folders(folder)
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error}") from error
        write_atomic(folder / CASE, case_json(record))
        write_atomic(folder / SCRIPT, repro_script(record))
        write_atomic(folder / FINDING, pretty(record))
        return folder

    def remove_finding(self, key: Key) -> None:
        """Remove the folder of a finding that another one holds; finding.json goes first and makes it no finding."""
        folder = self.finding_path(key)
        try:
            for name in (FINDING, CASE, SCRIPT):
                disk.remove(folder / name)
            if folder.exists() and not any(folder.iterdir()):
                disk.remove_folder(folder)
        except OSError as error:
            raise StoreError(f"cannot remove {folder}: {error}") from error

    def finding_path(self, key: Key) -> Path:
        """The folder of a bucket."""
        return self.path / FINDINGS / finding_name(key)

    def claims(self) -> Claims:
        """The batches handed out so far; none where the note is missing or damaged: what was judged is known by the results."""
        return read_claims(self.path, self.problems) or Claims(open=())

    def claim(self, claims: Claims) -> None:
        """Note which batches were handed out, before a worker gets the last of them."""
        write_atomic(self.path / PROGRESS, seal(msgspec.json.encode(claims)), durable=False)

    def lists(self) -> dict[str, tuple[str, ...]]:
        """The lists of cases by name, as far as they are known; a damaged note is made anew."""
        return read_lists(self.path, self.problems)

    def write_lists(self, lists: dict[str, tuple[str, ...]]) -> None:
        """Note the lists before a case of them is judged."""
        write_atomic(self.path / LISTS, seal(msgspec.json.encode(Lists(lists))))

    def inflight_path(self, worker: int) -> Path:
        """Where worker number `worker` announces its case."""
        folder = self.path / INFLIGHT
        try:
            make_folders(folder)
        except OSError as error:
            raise StoreError(f"cannot write {folder}: {error}") from error
        return folder / f"{worker}.json"

    def write_summary(self, summary: Summary) -> None:
        """Write summary.json, after forcing the results to the disk. Where that fails there is none, so that the run is not over."""
        self._close_results()
        try:
            write_atomic(self.path / SUMMARY, pretty(summary))
        except StoreError:
            with contextlib.suppress(StoreError):
                self.forget_summary()
            raise

    def forget_summary(self) -> None:
        """Remove the summary of a run that is not over."""
        self._remove(self.path / SUMMARY)

    def _remove(self, path: Path) -> None:
        try:
            disk.remove(path)
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error}") from error

    def _close_results(self) -> None:
        if self._results >= 0:
            descriptor, self._results = self._results, -1
            try:
                disk.sync(descriptor)
            except OSError as error:
                raise StoreError(f"cannot write {self.path / RESULTS}: {error}") from error
            finally:
                disk.close(descriptor)

    def close(self, leftovers: Iterable[Path] = ()) -> None:
        """Release the folder and remove notes that are of no more use."""
        try:
            self._close_results()
            for path in leftovers:
                with contextlib.suppress(OSError):
                    disk.remove(path)
        finally:
            self._lock.release()

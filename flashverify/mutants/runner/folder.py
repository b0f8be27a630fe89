"""The folder of a run over mutants: header.json first, cases.json, then results.jsonl, one line a mutant, then summary.json."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec
from filelock import FileLock, Timeout

from flashverify.campaign.store.files import open_inside, read_capped, set_aside, write_atomic
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.errors import StoreError, UsageError
from flashverify.mutants.runner.records import Header, MutantResult

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MutantFolder"]

_HEADER, _CASES, _RESULTS, _SUMMARY = "header.json", "cases.json", "results.jsonl", "summary.json"
_MAX_RESULTS = 256 * 1024 * 1024


class MutantFolder:
    """Writes and resumes a run; one process at a time.

    A result is on the disk when `append` returns, so that `kill -9` costs the mutants in work and nothing else.

    Args:
        path: the folder; made where missing.
        header: of this run.

    Raises:
        UsageError: it holds a run under another header, or another process writes to it.
        StoreError: it cannot be read or written.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path / ".lock")
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(f"out={str(path)!r} is not accepted: another run is writing to it") from None
        except OSError as error:
            raise StoreError(f"cannot write to {path}: {error}") from error
        try:
            self._check_header(header)
        except BaseException:
            self._lock.release()
            raise

    def _check_header(self, header: Header) -> None:
        file = self.path / _HEADER
        if not file.exists():
            if any(self.path.glob("[!.]*")):
                raise UsageError(
                    f"out={str(self.path)!r} is not accepted: it holds something that is no run over mutants"
                )
            write_atomic(file, msgspec.json.format(msgspec.json.encode(header), indent=2) + b"\n")
            return
        try:
            before = decode(read_capped(file, within=self.path), Header)
        except DamagedRecordError as error:
            raise StoreError(f"{file} is damaged: {error}") from error
        changed = [name for name in Header.__struct_fields__ if getattr(before, name) != getattr(header, name)]
        if changed:
            shown = ", ".join(_difference(name, before, header) for name in changed)
            raise UsageError(f"out={str(self.path)!r} is not accepted: it holds a run with another header ({shown})")

    def cases(self) -> dict[str, tuple[str, ...]] | None:
        """The cases drawn for the run by subject, or None where they have not been drawn."""
        try:
            return decode(read_capped(self.path / _CASES, within=self.path), dict[str, tuple[str, ...]])
        except StoreError:
            return None
        except DamagedRecordError as error:
            raise StoreError(f"{self.path / _CASES} is damaged: {error}") from error

    def write_cases(self, cases: dict[str, tuple[str, ...]]) -> None:
        """Keep what was drawn."""
        write_atomic(self.path / _CASES, msgspec.json.encode(cases))

    def results(self) -> dict[str, MutantResult]:
        """What is known, by name. A line that a kill tore is taken out of the file, so that its mutant is judged again."""
        file = self.path / _RESULTS
        if not file.exists():
            return {}
        found: dict[str, MutantResult] = {}
        lines = read_capped(file, _MAX_RESULTS, within=self.path).split(b"\n")
        torn = bool(lines[-1])
        for line in lines[:-1]:
            try:
                result = decode(line, MutantResult)
            except DamagedRecordError:
                torn = True
                continue
            found.setdefault(result.name, result)
        if torn:
            set_aside(file, move=False)
            write_atomic(file, b"".join(msgspec.json.encode(result) + b"\n" for result in found.values()))
        return found

    def append(self, result: MutantResult) -> None:
        """One line, on the disk when this returns."""
        file = self.path / _RESULTS
        try:
            descriptor = open_inside(file, self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                data = msgspec.json.encode(result) + b"\n"
                while data:
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot write {file}: {error}") from error

    def write_summary(self, summary: dict[str, Any]) -> None:
        """What the results add up to."""
        write_atomic(self.path / _SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")

    def close(self) -> None:
        """Let another process write."""
        self._lock.release()


def _difference(name: str, before: Header, now: Header) -> str:
    old, new = getattr(before, name), getattr(now, name)
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        return f"{name}: " + "; ".join(f"{key} {old.get(key)!r}, now {new.get(key)!r}" for key in keys)
    if isinstance(old, tuple):
        return f"{name}: {len(old)} of them, now {len(new)}" if len(old) != len(new) else f"{name}: others"
    return f"{name}: {old!r}, now {new!r}"

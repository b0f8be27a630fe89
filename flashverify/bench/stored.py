"""A run in a file, to compare another one with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.bench.records import Measurement
from flashverify.bench.spread import Spread
from flashverify.errors import StoreError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Earlier", "change", "earlier_run", "store"]


class Earlier(msgspec.Struct, frozen=True):
    """What `flashverify bench --out` stored.

    Attributes:
        machine: what it ran on.
        measurements: all of them.
    """

    machine: str
    measurements: tuple[Measurement, ...]

    def of(self, now: Measurement) -> Measurement | None:
        """The same subject on the same workload, where it was timed."""
        alike = (m for m in self.measurements if (m.workload, m.subject) == (now.workload, now.subject))
        return next((m for m in alike if m.milliseconds), None)


def earlier_run(path: Path) -> Earlier:
    """The run that `path` holds.

    Raises:
        UsageError: it is no readable file of a run.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Earlier)
    except OSError as error:
        raise UsageError(f"--compare={str(path)!r} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"--compare={str(path)!r} is not accepted: a file that `flashverify bench --out` stored ({error})"
        ) from error


def change(before: Measurement, now: Measurement) -> Spread:
    """How many times as fast it is now; both were timed."""
    return Spread.of(before.milliseconds).over(Spread.of(now.milliseconds))


def store(run: dict[str, Any], path: Path) -> None:
    """Writes the run; whoever reads meanwhile sees the old bytes or the new ones.

    Raises:
        StoreError: the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_bytes(msgspec.json.encode(run))
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise StoreError(f"--out={str(path)!r} cannot be written: {error.strerror}") from error

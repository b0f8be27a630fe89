"""live.json of a run folder: how a campaign stands, for whoever sees the folder. It carries no verdict."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.store.files import read_capped, write_atomic
from flashverify.campaign.store.sealing import DamagedRecordError, decode, pretty
from flashverify.campaign.supervisor.events import Finished, Progress
from flashverify.errors import StoreError
from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SILENT_AFTER", "Live", "LiveFile", "read_live"]

_LIVE = "live.json"
_EVERY = 2.0
SILENT_AFTER = 60.0
"""Seconds without a word after which a campaign on another machine counts as gone."""


class Live(msgspec.Struct, frozen=True):
    """How a campaign stands.

    Attributes:
        progress: at the time `updated`, seconds since the epoch; without the ratios.
        host: the machine; `pid` is the process on it.
        over: whether the campaign ended by itself.
        worst: largest ratio per output, as hex floats.
    """

    progress: Progress
    updated: float
    host: str
    pid: int
    over: bool = False
    worst: dict[str, str] = {}

    def runs(self, now: float) -> bool:
        """Whether the campaign seems to go on; of another machine its last word tells."""
        if self.over or now - self.updated < 2 * _EVERY:
            return not self.over
        if self.host != socket.gethostname():
            return now - self.updated < SILENT_AFTER
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            pass
        return True


class LiveFile:
    """A listener that writes the file, at most every two seconds.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _LIVE
        self._next = 0.0
        self._last: Progress | None = None

    def __call__(self, event: msgspec.Struct) -> None:
        """Note an event."""
        if isinstance(event, Progress):
            self._last = event
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + _EVERY
                self._write(event, over=False)
        elif isinstance(event, Finished) and self._last is not None:
            summary = event.summary
            last = msgspec.structs.replace(
                self._last, elapsed=summary.seconds, findings=summary.findings, explaining=0, workers=()
            )
            self._write(last, over=True)

    def _write(self, progress: Progress, *, over: bool) -> None:
        worst = {output: ratio.hex() for output, ratio in progress.worst.items()}  # JSON has no infinity
        bare = msgspec.structs.replace(progress, worst={})
        live = Live(bare, time.time(), socket.gethostname(), os.getpid(), over, worst)
        with contextlib.suppress(StoreError):  # a disk that refuses shows in the results
            write_atomic(self._path, pretty(live), durable=False)


def read_live(folder: Path) -> Live | None:
    """What is noted in a run folder; None where nothing is, or it is damaged."""
    try:
        live = decode(read_capped(folder / _LIVE, within=folder), Live)
        worst = {output: from_hex(ratio) for output, ratio in live.worst.items()}
    except (StoreError, DamagedRecordError, ValueError):
        return None
    return msgspec.structs.replace(live, progress=msgspec.structs.replace(live.progress, worst=worst))

"""The index of a run grows while the run judges, so that its first report need not parse a million results."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from flashverify.campaign.store.results import pieces
from flashverify.campaign.store.segments import has_segment, segment_command
from flashverify.child_process import child_environment

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Indexing"]

_EVERY = 20.0
"""Seconds between two looks at the size of the results."""


class Indexing:
    """Starts one process after the other, of low priority, for the pieces that will not change any more. The campaign waits for none.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._next = time.monotonic() + _EVERY

    def tick(self) -> None:
        """Go on, where it is time."""
        if self._process is not None and self._process.poll() is not None:
            self._process, self._next = None, 0.0
        if self._process is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._start()

    def _start(self) -> None:
        for number, piece in enumerate(pieces(self._folder)[:-1]):
            if number not in self._asked and not has_segment(self._folder, number):
                self._asked.add(number)  # once: a piece with a damaged line has no segment
                try:
                    self._process = subprocess.Popen(
                        ("nice", *segment_command(self._folder, number, piece)),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env=child_environment(interpret=False),
                    )
                except OSError:
                    self._process = None  # a reader makes it
                return

    def close(self) -> None:
        """End the process that reads; what it did not keep is read again by the next reader."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

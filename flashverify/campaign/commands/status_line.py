"""What a person sees while a campaign runs: a panel on a terminal, otherwise a line now and then; and what happened, as it happens."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from flashverify.campaign.card.content import card_of
from flashverify.campaign.card.lines import diagnosis_lines
from flashverify.campaign.commands.panel import key_words, one_line, panel_lines, status_text
from flashverify.campaign.gpus import gpu_words
from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.supervisor.events import (
    FindingFolded,
    FindingMinimal,
    FindingReconsidered,
    FindingSeen,
    GpuSetAside,
    Progress,
    WorkerLost,
)

if TYPE_CHECKING:
    from types import TracebackType

    import msgspec
    from rich.live import Live

__all__ = ["StatusLine"]

_PLAIN_EVERY = 30.0
_PANEL_EVERY = 0.5
_DUMB = ("", "dumb", "unknown")


class StatusLine:
    """A listener that writes to stderr: a panel, twice a second, on a terminal that can move its cursor; otherwise a line every 30 seconds.

    Args:
        head: which campaign it is.
    """

    def __init__(self, head: str = "") -> None:
        self._head = head
        self._live: Live | None = None
        self._next = time.monotonic() + _PLAIN_EVERY

    def __enter__(self) -> StatusLine:
        if sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False, markup=False)
            # It draws when it is told to, and leaves nothing behind; `NO_COLOR` is the console's own.
            self._live = Live(
                "starting workers", console=console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start(refresh=True)
            self._next = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: msgspec.Struct) -> None:
        """Show an event."""
        if isinstance(event, Progress):
            self._progress(event)
        elif isinstance(event, FindingSeen):
            if not event.first:
                self._print(f"also failing: {key_words(event.record.key)}")
                return
            self._print(f"finding: {key_words(event.record.key)}: {event.record.verdict.message}")
            self._print(f"  {replay_line(event.record)}")
        elif isinstance(event, FindingMinimal):
            word = "stored" if event.record.not_minimal else "minimal"
            self._print(f"{word}: {key_words(event.record.key)}: {event.record.case}")
            for line in diagnosis_lines(event.record.diagnosis):
                self._print(f"  {line}")
        elif isinstance(event, FindingReconsidered):
            self._print(f"looked at again: {key_words(event.record.key)}")
            for line in diagnosis_lines(event.record.diagnosis):
                self._print(f"  {line}")
        elif isinstance(event, FindingFolded):
            why, bucket = event.folded.why, key_words(event.folded.key)
            self._print(f"same cause ({why}): {bucket}: {card_of(event.record).title}")
        elif isinstance(event, WorkerLost):
            self._print(f"worker {event.worker} lost: {event.reason}" + (f": {event.case}" if event.case else ""))
        elif isinstance(event, GpuSetAside):
            self._print(f"{gpu_words(event.gpu)} set aside: {event.reason}")

    def _progress(self, progress: Progress) -> None:
        if time.monotonic() < self._next:
            return
        if self._live is None:
            self._next = time.monotonic() + _PLAIN_EVERY
            self._print(status_text(progress))
            return
        from rich.text import Text

        self._next = time.monotonic() + _PANEL_EVERY
        width = self._live.console.width
        lines = panel_lines(progress, head=self._head, width=width)[: max(1, self._live.console.height - 1)]
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)

    def note(self, words: str) -> None:
        """Say what begins now."""
        if self._live is not None:
            self._live.update(words, refresh=True)

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(one_line(line), soft_wrap=True)
        else:
            print(one_line(line), file=sys.stderr, flush=True)

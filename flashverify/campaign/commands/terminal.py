"""What a person sees: a status line while a campaign runs, and the verdict at its end."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.campaign.card.content import card_of
from flashverify.campaign.card.fields import card_fields
from flashverify.campaign.card.lines import card_lines, diagnosis_lines
from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.supervisor.events import FindingFolded, FindingMinimal, FindingSeen, Progress, WorkerLost
from flashverify.judge.record import THIN
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.status import Status

    from flashverify.judge.record import FindingRecord, Summary
    from flashverify.judge.verdict import Key, Sampled

__all__ = ["StatusLine", "one_line", "summary_json", "verdict_lines"]

_PLAIN_EVERY = 10.0
_MOST_UNEXPLAINED = 3
"""Findings that have a card in the terminal although nobody verified them."""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _ratios(worst: dict[str, float]) -> str:
    return " ".join(f"{output} {ratio:.3g}" for output, ratio in sorted(worst.items()))


def one_line(text: str) -> str:
    """The text with what cannot be printed, line ends among it, replaced."""
    return "".join(c if c.isprintable() else "?" for c in text)


def status_text(p: Progress) -> str:
    """One line."""
    cases = f"{p.cases}/{p.total} cases" if p.total is not None else f"{p.cases} cases"
    parts = [cases, f"{p.rate:.1f}/s", f"{p.findings} findings"]
    if p.explaining:
        words = f"minimising {min(p.explained + p.explaining, p.findings)} of {p.findings}"
        parts.append(words + (f", {_clock(p.explaining_left)} left" if p.explaining_left is not None else ""))
    parts += [f"{p.errors} errors"] * bool(p.errors)
    parts += [f"{p.restarts} restarts"] * bool(p.restarts)
    parts.append(f"{_clock(p.remaining)} left" if p.remaining is not None else f"{_clock(p.elapsed)} gone")
    parts += [f"worst {_ratios(p.worst)}"] * bool(p.worst)
    return " · ".join(parts)


class StatusLine:
    """A listener that writes to stderr: a live line on a terminal, plain lines every ten seconds otherwise."""

    def __init__(self) -> None:
        self._live: Status | None = None
        self._next = time.monotonic() + _PLAIN_EVERY

    def __enter__(self) -> StatusLine:
        if sys.stderr.isatty():
            from rich.console import Console

            self._live = Console(stderr=True, highlight=False, markup=False).status("starting workers")
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: msgspec.Struct) -> None:
        """Show an event."""
        if isinstance(event, Progress):
            if self._live is not None:
                from rich.text import Text

                self._live.update(Text(status_text(event), no_wrap=True, overflow="ellipsis"))
            elif time.monotonic() >= self._next:
                self._next = time.monotonic() + _PLAIN_EVERY
                self._print(status_text(event))
        elif isinstance(event, FindingSeen):
            if not event.first:
                self._print(f"also failing: {_words(event.record.key)}")
                return
            self._print(f"finding: {_words(event.record.key)}: {event.record.verdict.message}")
            self._print(f"  {replay_line(event.record)}")
        elif isinstance(event, FindingMinimal):
            word = "stored" if event.record.not_minimal else "minimal"
            self._print(f"{word}: {_words(event.record.key)}: {event.record.case}")
            for line in diagnosis_lines(event.record.diagnosis):
                self._print(f"  {line}")
        elif isinstance(event, FindingFolded):
            self._print(f"same cause ({event.folded.why}): {_words(event.folded.key)}: {card_of(event.record).title}")
        elif isinstance(event, WorkerLost):
            self._print(f"worker {event.worker} lost: {event.reason}" + (f": {event.case}" if event.case else ""))

    def note(self, words: str) -> None:
        """Say what begins now."""
        if self._live is not None:
            self._live.update(words)

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(one_line(line), soft_wrap=True)
        else:
            print(one_line(line), file=sys.stderr, flush=True)


def _words(key: Key) -> str:
    words = (
        [key.subject, key.check]
        + [key.error] * (key.error != key.check)
        + [key.output] * bool(key.output)
        + [key.dtype]
    )
    return " ".join(words)


_STOPPED = {
    "interrupted": "INTERRUPTED",
    "workers": "NO VERDICT: workers kept dying",
    "disk": "NO VERDICT: the disk refuses",
}


def _headline_of(summary: Summary, errors: int, first_error: str) -> str:
    findings = plural(summary.findings, "finding")
    if summary.stopped in _STOPPED:
        part = f": {summary.part}" if summary.part else ""
        return _STOPPED[summary.stopped] + part + (f", {findings} so far" if summary.findings else "")
    verdict = _verdict_of(summary, findings, errors, first_error)
    partial = summary.part and summary.cases and summary.stopped == "budget"
    return verdict + (f"; only {summary.part}" if partial else "")


def _verdict_of(summary: Summary, findings: str, errors: int, first_error: str) -> str:
    if not summary.cases:
        return "NO VERDICT: no case was judged" + (f" ({first_error})" if first_error else "")
    if summary.findings:
        ended = "; the search ended there, as asked" if summary.stopped == "findings" else ""
        return f"FAIL: {findings}{ended}"
    if errors:
        return f"NO VERDICT: {errors} cases could not be judged ({first_error})"
    if not summary.covering:
        return "NO VERDICT: no case counts as coverage: most elements are exempt, or zeros would pass"
    if summary.covering < THIN:
        return f"PASS, thin: no finding, but only {plural(summary.covering, 'covering case')} (below {THIN})"
    return "PASS: no finding"


def verdict_lines(
    summary: Summary,
    findings: Sequence[FindingRecord],
    worst: dict[str, float],
    out: Path,
    reports: Sequence[Path],
    *,
    errors: int = 0,
    first_error: str = "",
    sampled: Sampled | None = None,
) -> list[str]:
    """The end of a campaign in words: the verdict first, then counts, ratios, findings, files."""
    lines = [
        _headline_of(summary, errors, first_error),
        f"{summary.cases} cases judged, {summary.covering} covering, {summary.unsupported} unsupported, "
        f"{errors} errors, {summary.restarts} restarts, {_clock(summary.seconds)}",
    ]
    if errors and first_error not in lines[0]:
        lines.append(f"not judged, first cause: {first_error}")
    if sampled is not None:
        lines.append(f"{sampled}; relations and counting look at the others")
    if worst:
        lines.append(f"worst error / bound: {_ratios(worst)}")
    shown = [record for n, record in enumerate(findings) if n < _MOST_UNEXPLAINED or record.confirmation.repeats]
    for number, record in enumerate(shown, 1):
        lines += ["", *card_lines(card_of(record), number=number * (len(findings) > 1), width=_width())]
    if others := [record for record in findings if record not in shown]:
        lines += [
            "",
            f"{plural(len(others), 'further finding')} that there was no time to explain; the report has their cards:",
        ]
        lines += [f"  {_words(record.key)}: {plural(record.count, 'case')}" for record in others]
    lines += ["", f"run: {out}"] + [f"report: {path}" for path in reports]
    if summary.stopped != "budget":
        lines.append(f"unfinished: with --out {shlex.quote(str(out))} the same command goes on")
    return [one_line(line) for line in lines]


def _width() -> int:
    """Columns of the terminal that reads the verdict; 0 where none does."""
    return max(60, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 0


def summary_json(
    summary: Summary,
    findings: Sequence[FindingRecord],
    worst: dict[str, float],
    out: Path,
    reports: Sequence[Path],
    headline: str,
) -> dict[str, Any]:
    """The same for a program; ratios are hex floats."""
    return {
        "verdict": headline,
        "exit_code": summary.exit_code,
        "run": str(out),
        "summary": msgspec.to_builtins(summary),
        "worst": {output: ratio.hex() for output, ratio in sorted(worst.items())},
        "thin": summary.exit_code == 0 and summary.covering < THIN,
        "findings": [msgspec.to_builtins(record) | card_fields(card_of(record)) for record in findings],
        "reports": [str(path) for path in reports],
    }

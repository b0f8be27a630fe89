"""What a person sees: a status line while a campaign runs, and the verdict at its end."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.campaign.commands.replay import diagnosis_lines
from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.supervisor.events import FindingMinimal, FindingSeen, Progress, WorkerLost
from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from rich.status import Status

    from flashverify.judge.record import FindingRecord, Summary

__all__ = ["StatusLine", "summary_json", "verdict_lines"]

_PLAIN_EVERY = 10.0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _ratios(worst: dict[str, float]) -> str:
    return " ".join(f"{output} {ratio:.3g}" for output, ratio in sorted(worst.items()))


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def status_text(p: Progress) -> str:
    """One line."""
    cases = f"{p.cases}/{p.total} cases" if p.total is not None else f"{p.cases} cases"
    parts = [cases, f"{p.rate:.1f}/s", f"{p.findings} findings"]
    if p.explaining:
        words = f"minimising {min(p.explained + p.explaining, p.findings)} of {p.findings}"
        parts.append(words + (f", {_clock(p.explaining_left)} left" if p.explaining_left is not None else ""))
    parts += [f"worst {_ratios(p.worst)}"] * bool(p.worst)
    parts += [f"{p.errors} errors"] * bool(p.errors)
    parts += [f"{p.restarts} restarts"] * bool(p.restarts)
    parts.append(f"{_clock(p.remaining)} left" if p.remaining is not None else f"{_clock(p.elapsed)} gone")
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

                self._live.update(Text(status_text(event)))
            elif time.monotonic() >= self._next:
                self._next = time.monotonic() + _PLAIN_EVERY
                self._print(status_text(event))
        elif isinstance(event, FindingSeen):
            self._print(
                f"finding: {_headline(event.record)}" + (f": {event.record.verdict.message}" if event.first else "")
            )
            if event.first:
                self._print(f"  {replay_line(event.record)}")
        elif isinstance(event, FindingMinimal):
            word = "stored" if event.record.not_minimal else "minimal"
            self._print(f"{word}: {_headline(event.record)}: {event.record.case}")
            for line in diagnosis_lines(event.record.diagnosis):
                self._print(f"  {line}")
        elif isinstance(event, WorkerLost):
            self._print(f"worker {event.worker} lost: {event.reason}" + (f": {event.case}" if event.case else ""))

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(_one_line(line), soft_wrap=True)
        else:
            print(_one_line(line), file=sys.stderr, flush=True)


def _headline(record: FindingRecord) -> str:
    key = record.key
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
    plural = "" if summary.findings == 1 else "s"
    if summary.stopped in _STOPPED:
        return _STOPPED[summary.stopped] + (f", {summary.findings} finding{plural} so far" if summary.findings else "")
    if not summary.cases:
        return "NO VERDICT: no case was judged" + (f" ({first_error})" if first_error else "")
    if summary.findings:
        ended = "; the search ended there, as asked" if summary.stopped == "findings" else ""
        return f"FAIL: {summary.findings} finding{plural}{ended}"
    if errors:
        return f"NO VERDICT: {errors} cases could not be judged ({first_error})"
    if not summary.covering:
        return "NO VERDICT: no case counts as coverage: most elements are exempt, or zeros would pass"
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
) -> list[str]:
    """The end of a campaign in words: the verdict first, then counts, ratios, findings, files."""
    lines = [
        _headline_of(summary, errors, first_error),
        f"{summary.cases} cases judged, {summary.covering} covering, {summary.unsupported} unsupported, "
        f"{errors} errors, {summary.restarts} restarts, {_clock(summary.seconds)}",
    ]
    if errors and first_error not in lines[0]:
        lines.append(f"not judged, first cause: {first_error}")
    if worst:
        lines.append(f"worst error / bound: {_ratios(worst)}")
    for record in findings:
        lines += ["", f"{_headline(record)} ({record.count} cases)", f"  {record.verdict.message}"]
        lines += [f"    {line}" for line in record.verdict.traceback.splitlines()]
        lines += [f"  {line}" for line in diagnosis_lines(record.diagnosis)]
        lines.append(f"  {_confirmed(record)}")
        lines += [f"  not minimal: {record.not_minimal}"] * bool(record.not_minimal)
        lines.append(f"  {replay_line(record)}")
    lines += ["", f"run: {out}"] + [f"report: {path}" for path in reports]
    return [_one_line(line) for line in lines]


def _confirmed(record: FindingRecord) -> str:
    c = record.confirmation
    text = f"failed {c.failed} of {c.repeats} fresh runs" if c.repeats else "not verified yet"
    if c.agrees is not None:
        verb = "confirmed" if c.agrees else "NOT confirmed"
        text += f", {verb} by {c.oracle}"
        if c.expected and c.got:
            given = " given the kernel's own O and LSE" if record.verdict.mode == "conditional" else ""
            text += f": got {from_hex(c.got):.6g}, exact{given} {from_hex(c.expected):.6g}"
    return text


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
        "findings": [msgspec.to_builtins(record) | {"replay": replay_line(record)} for record in findings],
        "reports": [str(path) for path in reports],
    }

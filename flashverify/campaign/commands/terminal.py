"""The verdict at the end of a campaign, in words and for a program."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.campaign.card.content import card_of
from flashverify.campaign.card.fields import card_fields
from flashverify.campaign.card.lines import card_lines
from flashverify.campaign.commands.panel import clock, key_words, one_line, ratio_words
from flashverify.judge.record import THIN
from flashverify.judge.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flashverify.judge.record import FindingRecord, Summary
    from flashverify.judge.verdict import Sampled

__all__ = ["summary_json", "verdict_lines"]

_MOST_UNEXPLAINED = 3
"""Findings that have a card in the terminal although nobody verified them."""


_STOPPED = {
    "interrupted": "INTERRUPTED",
    "workers": "NO VERDICT: workers kept dying",
    "gpus": "NO VERDICT: no GPU is left that keeps its workers",
    "places": "NO VERDICT: no place of the cluster is left that keeps its workers",
    "disk": "NO VERDICT: the disk refuses",
    "shards": "NO VERDICT",
}
_ENDED = {
    "findings": "; the search ended there, as asked",
    "workers": "; the run ended there, because workers kept dying",
    "gpus": "; the run ended there, because no GPU is left that keeps its workers",
    "places": "; the run ended there, because no place of the cluster is left that keeps its workers",
}
"""Why a run with findings was not gone on with."""


def _headline_of(summary: Summary, errors: int, first_error: str) -> str:
    findings = plural(summary.findings, "finding")
    if summary.stopped in _STOPPED and summary.exit_code != 1:
        part = f": {summary.part}" if summary.part else ""
        return _STOPPED[summary.stopped] + part + (f", {findings} so far" if summary.findings else "")
    verdict = _verdict_of(summary, findings, errors, first_error)
    partial = summary.part and summary.cases and summary.stopped in ("budget", "shards")
    return verdict + (f"; only {summary.part}" if partial else "")


def _verdict_of(summary: Summary, findings: str, errors: int, first_error: str) -> str:
    if not summary.cases:
        return "NO VERDICT: no case was judged" + (f" ({first_error})" if first_error else "")
    if summary.findings:
        return f"FAIL: {findings}{_ENDED.get(summary.stopped, '')}"
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
        f"{errors} errors, {summary.restarts} restarts, {clock(summary.seconds)}",
    ]
    if errors and first_error not in lines[0]:
        lines.append(f"not judged, first cause: {first_error}")
    if sampled is not None:
        lines.append(f"{sampled}; relations and counting look at the others")
    if worst:
        lines.append(f"worst error / bound: {ratio_words(worst)}")
    shown = [record for n, record in enumerate(findings) if n < _MOST_UNEXPLAINED or record.confirmation.repeats]
    for number, record in enumerate(shown, 1):
        lines += ["", *card_lines(card_of(record), number=number * (len(findings) > 1), width=_width())]
    if others := [record for record in findings if record not in shown]:
        lines += [
            "",
            f"{plural(len(others), 'further finding')} that there was no time to explain; the report has their cards:",
        ]
        lines += [f"  {key_words(record.key)}: {plural(record.count, 'case')}" for record in others]
    lines += ["", f"run: {out}"] + [f"report: {path}" for path in reports]
    if summary.stopped != "budget":
        command = "the command of the shards, without --shard," if summary.stopped == "shards" else "the same command"
        lines.append(f"unfinished: with --out {shlex.quote(str(out))} {command} goes on")
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

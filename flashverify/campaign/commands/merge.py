"""`flashverify merge` as a command: the merged run, its report, its verdict."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.commands.panel import one_line
from flashverify.campaign.commands.terminal import summary_json, verdict_lines
from flashverify.campaign.merging.merge import merge_shards
from flashverify.campaign.refusals.record import OUTSIDE_WRONG, read_refusals
from flashverify.campaign.refusals.words import refusal_lines
from flashverify.errors import FlashverifyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

__all__ = ["run_merge"]


def run_merge(
    out: Path,
    folders: Sequence[Path],
    *,
    as_json: bool = False,
    report: Callable[[Path], Iterable[Path]] | None = None,
) -> int:
    """Merge, report, print the verdict; the exit code.

    Raises:
        UsageError: the folders are not the shards of one campaign, or `out` is taken.
        StoreError: a folder cannot be read or written.
    """
    merged = merge_shards(out, folders, command=shlex.join(("flashverify", *sys.argv[1:])))
    for problem in merged.problems:
        print(f"flashverify: warning: {one_line(problem)}", file=sys.stderr)
    summary, tally, outside = merged.summary, merged.tally, read_refusals(out)
    if outside is not None and outside.bad and summary.exit_code == 0:
        summary = msgspec.structs.replace(summary, exit_code=OUTSIDE_WRONG)
    reports = _written(report, out)
    findings = tally.findings()
    lines = verdict_lines(
        summary,
        findings,
        tally.worst,
        out,
        reports,
        errors=tally.errors,
        first_error=tally.first_error,
        sampled=tally.sampled,
    )
    if outside is not None:
        lines = [*lines, "", *map(one_line, refusal_lines(outside))]
    if as_json:
        print(json.dumps(summary_json(summary, findings, tally.worst, out, reports, lines[0])))
    else:
        print("\n".join(lines))
    return summary.exit_code


def _written(report: Callable[[Path], Iterable[Path]] | None, out: Path) -> tuple[Path, ...]:
    try:
        return tuple(report(out)) if report is not None else ()
    except (FlashverifyError, OSError) as error:
        print(f"flashverify: warning: no report: {error}", file=sys.stderr)
        return ()

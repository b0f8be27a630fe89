"""The command `flashverify compare`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from flashverify.baseline.reading import baseline_for
from flashverify.campaign.commands.options import JSON, settings_of, shared_options
from flashverify.ci.options import CI_COMMENT
from flashverify.errors import UsageError

__all__ = ["compare_command"]

STORED = "comparison.json"


@click.command("compare", short_help="Say whether a change may be merged.")
@click.argument("sides", metavar="BASE [CANDIDATE]", nargs=-1, required=True)
@click.option("--subject", metavar="SPEC", help="of the folders or revisions that are compared")
@click.option("--cases", metavar="N", type=click.IntRange(min=1), help="judge N drawn cases and no others")
@click.option(
    "--drawn",
    metavar="N",
    type=click.IntRange(min=0),
    default=100,
    help="drawn cases beside matrix and corpus [default: 100]",
)
@click.option(
    "--timings/--no-timings",
    default=None,
    help="time both sides at a few shapes; on a CPU that is its own time [default: on a GPU]",
)
@click.option("--explain", metavar="NAME", help="of an earlier comparison: the case behind a number, and its replay")
@click.option("--junit", metavar="FILE", help="write JUnit XML")
@shared_options("seed", "max-cases", "workers", "out", "device", "numerics", "baseline")
@CI_COMMENT
@JSON
def compare_command(
    sides: tuple[str, ...],
    subject: str | None,
    cases: int | None,
    drawn: int,
    timings: bool | None,
    explain: str | None,
    junit: str | None,
    comment: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """May a change be merged? Two sides on the very same cases; exit code 1 is: do not merge.

    A side is a subject, the folder of a stored run, or with --subject a folder or a git revision. BASE..CANDIDATE stands for two revisions.
    Without stored runs, the cases are the standard matrix, the packaged corpus and drawn ones, those that both sides accept.
    """
    if explain is not None:
        click.echo(_explained(sides, explain))
        return 0
    if len(sides) > 2:
        raise UsageError(f"{' '.join(sides)} is not accepted: two sides, or two revisions as BASE..CANDIDATE")
    from flashverify.comparing.comparison import compare_sides
    from flashverify.comparing.judged_sides import Chosen, judged_sides
    from flashverify.comparing.sides import sides_of
    from flashverify.comparing.thresholds import read_thresholds
    from flashverify.comparing.writing import write_files

    settings = settings_of(options)
    if settings.out is None:
        settings = replace(settings, out=f"flashverify-out/compare-{os.getpid()}")
    baseline, limits = baseline_for(settings.baseline, Path.cwd()), read_thresholds(Path.cwd())
    chosen = Chosen(fixed=cases is None, drawn=drawn if cases is None else cases, timings=timings)
    comparison = compare_sides(judged_sides(*sides_of(sides, subject), settings, chosen), baseline, limits)
    paths = write_files(comparison, Path(str(settings.out)), junit, comment)
    if as_json:
        click.echo(comparison.to_json())
    else:
        click.echo(comparison.to_text())
        click.echo("\n".join(str(path) for path in paths))
    return comparison.exit_code


def _explained(sides: tuple[str, ...], name: str) -> str:
    """The case behind a number of a stored comparison."""
    from flashverify.comparing.explaining import explained

    path = Path(sides[0]) / STORED if len(sides) == 1 else None
    if path is None or not path.is_file():
        raise UsageError(
            f"{' '.join(sides)} is not accepted with --explain: the folder of an earlier comparison, which holds {STORED}"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return explained(document, name)

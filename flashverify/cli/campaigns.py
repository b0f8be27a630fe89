"""`flashverify run` and `flashverify fuzz`: a campaign, with its baseline, its kept cases and its outputs for a CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashverify.baseline.reading import baseline_for
from flashverify.campaign.commands.options import (
    CORPUS,
    FAIL_FAST,
    JSON,
    MPS,
    REFUSALS,
    REPORT,
    settings_of,
    shared_options,
    shrink_option,
)
from flashverify.ci.options import ci_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["fuzz_command", "run_command"]


def _report_writer(unwanted: bool) -> Callable[[Path], Sequence[Path]] | None:
    """Writes the report of a run folder; None where it is unwanted."""

    def write(run: Path) -> Sequence[Path]:
        from flashverify.report import write_report

        return write_report(run)

    return None if unwanted else write


def _campaign(
    kind: str,
    options: dict[str, Any],
    as_json: bool,
    no_report: bool,
    *,
    matrix: bool = False,
    packaged: bool = False,
) -> int:
    """Run a campaign with its baseline, its kept cases and its outputs for a CI; the exit code."""
    from flashverify.campaign.commands.campaign import campaign_config, run_campaign
    from flashverify.campaign.corpus.kept import keep_cases, kept_cases
    from flashverify.ci.writing import CiFiles

    files, corpus, refusals = CiFiles.take(options), options.pop("corpus"), options.pop("refusals")
    settings = settings_of(options)
    baseline = baseline_for(settings.baseline, Path.cwd())
    kept = kept_cases(Path(corpus)) if corpus else ()
    config = campaign_config(kind, settings, kept=kept, matrix=matrix, corpus=packaged)
    report = _report_writer(no_report)
    summary = run_campaign(
        config, as_json=as_json, report=report, refusals=refusals, baseline=baseline, ended=files.write
    )
    if corpus:
        keep_cases(Path(corpus), config.out)
    return summary.exit_code


@click.command("run", short_help="Judge the fixed matrix of cases.")
@shared_options(
    "subject",
    "max-cases",
    "max-findings",
    "hours",
    "minutes",
    "shard",
    "workers",
    "out",
    "device",
    "gpus",
    "engine",
    "numerics",
    "baseline",
)
@MPS
@FAIL_FAST
@shrink_option("shrink findings [default: keep the smallest failing case of the matrix]")
@CORPUS
@REFUSALS
@ci_options
@JSON
@REPORT
def run_command(as_json: bool, no_report: bool, **options: Any) -> int:
    """Judge the fixed matrix of cases, every poison and variant.

    With --out naming an unfinished run, go on with it.
    """
    return _campaign("run", options, as_json, no_report)


@click.command("fuzz", short_help="Search for failing cases within a budget.")
@shared_options(
    "subject",
    "hours",
    "minutes",
    "max-cases",
    "max-findings",
    "seed",
    "shard",
    "workers",
    "compilers",
    "out",
    "device",
    "gpus",
    "engine",
    "numerics",
    "baseline",
    "profile",
)
@MPS
@FAIL_FAST
@shrink_option("shrink findings, within a third of the time [default: shrink]")
@click.option("--matrix", is_flag=True, help="judge the fixed matrix of `run` first, within the same budget")
@click.option("--no-corpus", is_flag=True, help="skip the packaged corpus, which is judged before anything is drawn")
@CORPUS
@REFUSALS
@ci_options
@JSON
@REPORT
def fuzz_command(matrix: bool, no_corpus: bool, as_json: bool, no_report: bool, **options: Any) -> int:
    """Search for failing cases within a budget [default: 10 minutes]; findings are shrunk, verified and diagnosed beside it.

    With --out naming an unfinished run, go on with it: --max-cases counts the whole run, --hours and --minutes this call.
    """
    return _campaign("fuzz", options, as_json, no_report, matrix=matrix, packaged=not no_corpus)

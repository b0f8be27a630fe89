"""The command line. Thin: it reads options, calls the campaign and the reports, and turns errors into exit codes.

Nothing here imports torch: subjects are loaded in worker processes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from flashverify.baseline.reading import baseline_for
from flashverify.bench.command import bench_command
from flashverify.campaign.commands.options import (
    CORPUS,
    FAIL_FAST,
    JSON,
    REFUSALS,
    REPORT,
    settings_of,
    shared_options,
    shrink_option,
)
from flashverify.campaign.commands.program import Program
from flashverify.ci.options import CI_COMMENT, ci_options
from flashverify.compiling.command import compile_command
from flashverify.describe.command import describe_command
from flashverify.errors import UsageError
from flashverify.gallery.command import gallery_command
from flashverify.mutants.command import mutants_command
from flashverify.probing.command import probe_command
from flashverify.xray.command import xray_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_EXIT_CODES = """
Exit codes: 0 clean and the budget met; 1 findings; 2 usage or configuration; 3 no verdict (no case was judged, every
worker died, the disk is full); 130 and 143 after SIGINT and SIGTERM, with everything stored.

Loading a subject runs its code.
"""


@click.group("flashverify", cls=Program, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="flashverify", prog_name="flashverify")
def main() -> None:
    """Verify and fuzz attention kernels against sound per-element bounds."""


main.add_command(bench_command)
main.add_command(compile_command)
main.add_command(xray_command)
main.add_command(describe_command)
main.add_command(probe_command)
main.add_command(mutants_command)
main.add_command(gallery_command)


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


@main.command("run")
@shared_options(
    "subject", "max-cases", "max-findings", "hours", "minutes", "workers", "out", "device", "numerics", "baseline"
)
@FAIL_FAST
@shrink_option("shrink findings [default: keep the smallest failing case of the matrix]")
@CORPUS
@REFUSALS
@ci_options
@JSON
@REPORT
def run_command(as_json: bool, no_report: bool, **options: Any) -> int:
    """Judge the fixed matrix of cases, every poison and variant."""
    return _campaign("run", options, as_json, no_report)


@main.command()
@shared_options(
    "subject",
    "hours",
    "minutes",
    "max-cases",
    "max-findings",
    "seed",
    "workers",
    "out",
    "device",
    "numerics",
    "baseline",
)
@FAIL_FAST
@shrink_option("shrink findings, within a third of the time [default: shrink]")
@click.option("--matrix", is_flag=True, help="judge the fixed matrix of `run` first, within the same budget")
@click.option("--no-corpus", is_flag=True, help="skip the packaged corpus, which is judged before anything is drawn")
@CORPUS
@REFUSALS
@ci_options
@JSON
@REPORT
def fuzz(matrix: bool, no_corpus: bool, as_json: bool, no_report: bool, **options: Any) -> int:
    """Search for failing cases within a budget [default: 10 minutes]; findings are shrunk, verified and diagnosed beside it.

    With --out naming an unfinished run, go on with it: --max-cases counts the whole run, --hours and --minutes this call.
    """
    return _campaign("fuzz", options, as_json, no_report, matrix=matrix, packaged=not no_corpus)


@main.command()
@click.argument("case", metavar="CASE|FILE|FOLDER|-")
@shared_options("device", "numerics")
@click.option("--subject", metavar="SPEC", help="registered name or module:name [default: the one in the file]")
@click.option("--check", metavar="NAME", default="", help="only this check")
@click.option("--diagnose", is_flag=True, help="say which wrong semantics explains the first failure")
@click.option("--outside", is_flag=True, help="judge a case that the subject does not declare, by its accuracy")
@JSON
def replay(
    case: str, subject: str | None, check: str, diagnose: bool, outside: bool, as_json: bool, **options: Any
) -> int:
    """Judge one case again, in a process of its own: its text, a case.json, a finding folder, or text on stdin."""
    from flashverify.campaign import environment, toolkit
    from flashverify.campaign.commands.replay import read_case, replay_case, result_code, result_lines
    from flashverify.campaign.plan_name import PlanName
    from flashverify.campaign.supervisor.probe import START_LIMIT
    from flashverify.campaign.supervisor.process import ProcessSetup

    found = read_case(case, sys.stdin)
    spec = subject or found.subject
    if not spec:
        raise UsageError("--subject is missing: a case as text needs one; a registered name or module:name")
    toolkit.load_toolkit(toolkit.BUNDLED).require_findable(spec)
    check = check or found.check
    settings = settings_of(options)
    device = environment.resolve_device(settings.device)
    numerics = environment.resolve_numerics(settings.numerics or (device == "cpu" and found.numerics) or None, device)
    setup = ProcessSetup(toolkit.BUNDLED, device, START_LIMIT, plain=True, numerics=numerics)
    plan = "outside" if outside else str(PlanName.of_check(check))
    result, diagnosis = replay_case(spec, found.case, plan, setup, diagnose=diagnose)
    if as_json:
        words = {"diagnosis": msgspec.to_builtins(diagnosis)} if diagnose else {}
        click.echo(json.dumps(msgspec.to_builtins(result) | words | {"exit_code": result_code(result)}))
    else:
        click.echo("\n".join(result_lines(result, diagnosis)))
    return result_code(result)


@main.command()
@click.argument("run_dir", metavar="RUN_DIR")
@ci_options
@JSON
def report(run_dir: str, as_json: bool, **options: Any) -> int:
    """Write the report of a stored run again: HTML, Markdown and JSON, and outputs for a CI."""
    from flashverify.campaign.store.writer import open_run

    summary = open_run(run_dir).summary
    from flashverify.ci.writing import CiFiles
    from flashverify.report import write_report

    CiFiles.take(options).write(Path(run_dir), "", summary.exit_code if summary else 3, None)

    paths = [str(path) for path in write_report(Path(run_dir))]
    click.echo(json.dumps({"reports": paths, "exit_code": 0}) if as_json else "\n".join(paths))
    return 0


@main.command()
@click.argument("before")
@click.argument("after")
@shared_options("seed", "max-cases", "workers", "out", "device", "baseline")
@click.option(
    "--cases", metavar="N", type=click.IntRange(min=1), help="judge N drawn cases instead of the standard matrix"
)
@CI_COMMENT
@JSON
def compare(before: str, after: str, cases: int | None, comment: str | None, as_json: bool, **options: Any) -> int:
    """Compare two stored runs, or two subjects on the very same cases; exit code 1 is: do not merge."""
    from flashverify.campaign.commands.paired import comparable_runs
    from flashverify.ci.writing import write_comparison_ci
    from flashverify.report.compare import compare_runs

    settings = settings_of(options)
    if settings.out is None:
        settings = replace(settings, out=f"flashverify-out/compare-{os.getpid()}")
    baseline = baseline_for(settings.baseline, Path.cwd())
    comparison = compare_runs(*comparable_runs(before, after, settings, cases or 0), baseline)
    write_comparison_ci(comparison.to_markdown(), comment)
    text = comparison.to_json() if as_json else comparison.to_text()
    click.echo(text if isinstance(text, str) else json.dumps(text))
    return int(comparison.exit_code)


@main.command("list")
@JSON
def list_command(as_json: bool) -> int:
    """List the registered subjects."""
    from flashverify.subjects import describe_subjects

    entries = [
        (str(name), str(text), bool(available), str(reason or ""))
        for name, text, available, reason in describe_subjects()
    ]
    if as_json:
        keys = ("name", "description", "available", "reason")
        click.echo(json.dumps({"subjects": [dict(zip(keys, entry, strict=True)) for entry in entries]}))
        return 0
    width = max((len(entry[0]) for entry in entries), default=0)
    for name, text, available, reason in entries:
        click.echo(f"{name:{width}}  {text}" + ("" if available else f"  [not available: {reason}]"))
    return 0

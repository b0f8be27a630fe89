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

from flashverify.bench.command import bench_command
from flashverify.campaign.commands.options import (
    FAIL_FAST,
    JSON,
    REPORT,
    settings_of,
    shared_options,
    shrink_option,
)
from flashverify.campaign.commands.program import Program
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


@main.command("run")
@shared_options("subject", "max-cases", "max-findings", "hours", "minutes", "workers", "out", "device", "numerics")
@FAIL_FAST
@shrink_option("shrink findings [default: keep the smallest failing case of the matrix]")
@JSON
@REPORT
def run_command(as_json: bool, no_report: bool, **options: Any) -> int:
    """Judge the fixed matrix of cases, every poison and variant."""
    from flashverify.campaign.commands.campaign import campaign_config, run_campaign

    config = campaign_config("run", settings_of(options))
    return run_campaign(config, as_json=as_json, report=_report_writer(no_report)).exit_code


@main.command()
@shared_options(
    "subject", "hours", "minutes", "max-cases", "max-findings", "seed", "workers", "out", "device", "numerics"
)
@FAIL_FAST
@shrink_option("shrink findings, within a third of the time [default: shrink]")
@click.option("--matrix", is_flag=True, help="judge the fixed matrix of `run` first, within the same budget")
@click.option("--no-corpus", is_flag=True, help="skip the packaged corpus, which is judged before anything is drawn")
@JSON
@REPORT
def fuzz(matrix: bool, no_corpus: bool, as_json: bool, no_report: bool, **options: Any) -> int:
    """Search for failing cases within a budget [default: 10 minutes]; findings are shrunk, verified and diagnosed beside it.

    With --out naming an unfinished run, go on with it: --max-cases counts the whole run, --hours and --minutes this call.
    """
    from flashverify.campaign.commands.campaign import campaign_config, run_campaign

    config = campaign_config("fuzz", settings_of(options), matrix=matrix, corpus=not no_corpus)
    return run_campaign(config, as_json=as_json, report=_report_writer(no_report)).exit_code


@main.command()
@click.argument("case", metavar="CASE|FILE|FOLDER|-")
@shared_options("device", "numerics")
@click.option("--subject", metavar="SPEC", help="registered name or module:name [default: the one in the file]")
@click.option("--check", metavar="NAME", default="", help="only this check")
@click.option("--diagnose", is_flag=True, help="say which wrong semantics explains the first failure")
@JSON
def replay(case: str, subject: str | None, check: str, diagnose: bool, as_json: bool, **options: Any) -> int:
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
    plan = str(PlanName.of_check(check))
    result, diagnosis = replay_case(spec, found.case, plan, setup, diagnose=diagnose)
    if as_json:
        words = {"diagnosis": msgspec.to_builtins(diagnosis)} if diagnose else {}
        click.echo(json.dumps(msgspec.to_builtins(result) | words | {"exit_code": result_code(result)}))
    else:
        click.echo("\n".join(result_lines(result, diagnosis)))
    return result_code(result)


@main.command()
@click.argument("run_dir", metavar="RUN_DIR")
@JSON
def report(run_dir: str, as_json: bool) -> int:
    """Write the report of a stored run again: HTML, Markdown and JSON."""
    from flashverify.campaign.store.writer import open_run

    open_run(run_dir)
    from flashverify.report import write_report

    paths = [str(path) for path in write_report(Path(run_dir))]
    click.echo(json.dumps({"reports": paths, "exit_code": 0}) if as_json else "\n".join(paths))
    return 0


@main.command()
@click.argument("before")
@click.argument("after")
@shared_options("seed", "max-cases", "workers", "out", "device")
@click.option(
    "--cases", metavar="N", type=click.IntRange(min=1), help="judge N drawn cases instead of the standard matrix"
)
@JSON
def compare(before: str, after: str, cases: int | None, as_json: bool, **options: Any) -> int:
    """Compare two stored runs, or two subjects on the very same cases; exit code 1 is: do not merge."""
    from flashverify.campaign.commands.paired import comparable_runs
    from flashverify.report.compare import compare_runs

    settings = settings_of(options)
    if settings.out is None:
        settings = replace(settings, out=f"flashverify-out/compare-{os.getpid()}")
    comparison = compare_runs(*comparable_runs(before, after, settings, cases or 0))
    text = comparison.to_json() if as_json else comparison.to_text()
    click.echo(text if isinstance(text, str) else json.dumps(text))
    return int(comparison.exit_code)


@main.command("compile")
@click.option("--subject", multiple=True, metavar="SPEC", help="registered name or module:name; repeatable")
@click.option("--arch", multiple=True, metavar="sm_NN", help="repeatable [default: sm_80, sm_90 and sm_100]")
@click.option("--only", metavar="TEXT", default="", help="only launches with this text in their kernel or label")
@click.option(
    "--sample", metavar="N", type=click.IntRange(min=1), help="compile only N, spread evenly over all of them"
)
@JSON
def compile_command(
    subject: tuple[str, ...], arch: tuple[str, ...], only: str, sample: int | None, as_json: bool
) -> int:
    """Compile Triton kernels without a GPU: registers, shared memory, spills, and hazards in the intermediate code.

    Exit code 1 is: a hazard, or a kernel that does not compile.
    """
    from flashverify.compiling import ARCHITECTURES, as_text, compile_launches, exit_code, find_jobs, spread
    from flashverify.compiling import as_json as to_json
    from flashverify.subjects import default_subjects

    jobs = find_jobs(subject or default_subjects(), arch or ARCHITECTURES, only=only)
    found = compile_launches(spread(jobs, sample))
    click.echo(json.dumps(to_json(found, of=len(jobs))) if as_json else as_text(found, of=len(jobs)))
    return exit_code(found)


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

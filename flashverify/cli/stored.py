"""`flashverify replay`, `report` and `list`: what is stored or registered already."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from flashverify.campaign.commands.options import JSON, settings_of, shared_options
from flashverify.ci.options import ci_options
from flashverify.errors import UsageError

__all__ = ["list_command", "replay_command", "report_command"]


@click.command("replay", short_help="Judge one case again.")
@click.argument("case", metavar="CASE|FILE|FOLDER|-")
@shared_options("device", "numerics")
@click.option("--subject", metavar="SPEC", help="registered name or module:name [default: the one in the file]")
@click.option("--check", metavar="NAME", default="", help="only this check")
@click.option("--diagnose", is_flag=True, help="say which wrong semantics explains the first failure")
@click.option("--outside", is_flag=True, help="judge a case that the subject does not declare, by its accuracy")
@JSON
def replay_command(
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


@click.command("report", short_help="Write the report of a stored run again.")
@click.argument("run_dir", metavar="RUN_DIR")
@ci_options
@JSON
def report_command(run_dir: str, as_json: bool, **options: Any) -> int:
    """Write the report of a stored run again: HTML, Markdown and JSON, and outputs for a CI."""
    from flashverify.campaign.store.writer import open_run

    summary = open_run(run_dir).summary
    from flashverify.ci.writing import CiFiles
    from flashverify.report import write_report

    CiFiles.take(options).write(Path(run_dir), "", summary.exit_code if summary else 3, None)

    paths = [str(path) for path in write_report(Path(run_dir))]
    click.echo(json.dumps({"reports": paths, "exit_code": 0}) if as_json else "\n".join(paths))
    return 0


@click.command("list")
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

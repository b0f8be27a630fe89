"""`flashverify repair`: one change of the subject's source that makes a failing case right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from flashverify.campaign.commands.options import JSON, settings_of, shared_options
from flashverify.errors import UsageError

__all__ = ["repair_command"]

_MOST_SECONDS = 86_400


@click.command("repair", short_help="Find a change of the source that makes a case right.")
@click.argument("case", metavar="CASE|FILE|FOLDER|-")
@click.option("--subject", metavar="SPEC", help="registered name or module:name [default: the one in the file]")
@click.option(
    "--seconds",
    metavar="N",
    type=click.IntRange(1, _MOST_SECONDS),
    default=60,
    help="for which changes are tried [default: 60]",
)
@click.option(
    "--first", metavar="CASE|FILE", default="", help="another case that fails likewise [default: the finding's own]"
)
@shared_options("device", "numerics")
@JSON
def repair_command(case: str, subject: str | None, seconds: int, first: str, as_json: bool, **options: Any) -> int:
    """Find one change of the subject's source that makes it right on a failing case and on further ones.

    The case is its text, a case.json, a finding folder, a run folder with one finding, or text on stdin.

    Changes are tried in memory, in a process of its own that interprets kernels: no file is written. The first one found is printed as a
    patch that `git apply` takes. Exit code 1 is: there is none, 3: the subject cannot run.
    """
    from flashverify.campaign import environment, toolkit
    from flashverify.campaign.commands.replay import read_case
    from flashverify.campaign.repairing.asking import ask
    from flashverify.campaign.repairing.record import Request
    from flashverify.campaign.repairing.stored import finding_of, first_of
    from flashverify.campaign.repairing.words import answer_code, answer_lines, patch_of

    case = finding_of(case)
    found = read_case(case, sys.stdin)
    other = read_case(first, sys.stdin).case if first else first_of(case)
    spec = subject or found.subject
    if not spec:
        raise UsageError("--subject is missing: a case as text needs one; a registered name or module:name")
    toolkit.load_toolkit(toolkit.BUNDLED).require_findable(spec)
    settings = settings_of(options)
    if settings.device == "cuda":
        raise UsageError(
            "device='cuda' is not accepted: repairs are looked for where kernels are interpreted: --device cpu"
        )
    numerics = environment.resolve_numerics(settings.numerics or found.numerics or None, "cpu")
    request = Request(
        toolkit=toolkit.BUNDLED,
        subject=spec,
        case=found.case,
        first=other,
        stored_first=bool(other) and not first,
        check=found.check,
        numerics=numerics,
        seconds=seconds,
    )
    answer = ask(request)
    code, root = answer_code(answer), Path.cwd()
    if as_json:
        repairs = [msgspec.to_builtins(each) | {"patch": patch_of(each, root)} for each in answer.repairs]
        said = msgspec.to_builtins(answer) | {"case": found.case, "repairs": repairs, "exit_code": code}
        click.echo(json.dumps({name: value for name, value in said.items() if name != "type"}))
    else:
        click.echo("\n".join(answer_lines(answer, found.case, root)))
    return code

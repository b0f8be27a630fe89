"""The command `flashverify describe`."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import msgspec

from flashverify.child_process import child_environment
from flashverify.describe.record import Answer, Description, Failed, Request
from flashverify.describe.text import description_text
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError
from flashverify.subjects.finding import require_findable
from flashverify.subjects.registry import has_gpu

__all__ = ["describe_command"]

_LIMIT = 600.0
"""Seconds that a description may take."""


@click.command("describe", short_help="Say what a subject declares, and what not.")
@click.argument("subject", metavar="SUBJECT")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="of the drawn cases [default: 0]")
@click.option("--device", metavar="auto|cpu|cuda", default="auto", help="for which cases are drawn [default: auto]")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def describe_command(subject: str, seed: int, device: str, as_json: bool) -> int:
    """Say what a subject declares, what that leaves untested, and three drawn cases, each with the command that judges it.

    Nothing is judged. Exit code 2 is also: the subject's `also` refuses every case that is drawn.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: one of auto, cpu, cuda")
    require_findable(subject)
    where = ("cuda" if has_gpu() else "cpu") if device == "auto" else device
    found = _ask(Request(subject=subject, device=where, seed=seed))
    code = 0 if found.drawn else 2
    click.echo(json.dumps(msgspec.to_builtins(found) | {"exit_code": code}) if as_json else description_text(found))
    return code


def _ask(request: Request) -> Description:
    """The answer of a process in the right mode of Triton.

    Raises:
        FlashverifyError: the subject is not accepted, its module raised, or the process died.
    """
    done = subprocess.run(
        (sys.executable, "-P", "-m", "flashverify.describe.child"),
        input=msgspec.json.encode(request),
        capture_output=True,
        env=child_environment(interpret=request.device == "cpu"),
        timeout=_LIMIT,
        check=False,
    )
    try:
        reply = msgspec.json.decode(done.stdout, type=Answer | Failed)
    except msgspec.MsgspecError as error:
        tail = done.stderr.decode(errors="replace").strip()[-800:]
        raise NoVerdictError(f"the process of {request.subject} ended with {done.returncode}: {tail}") from error
    if isinstance(reply, Answer):
        return reply.description
    kinds = {"SubjectLoadError": SubjectLoadError, "UsageError": UsageError}
    kind = kinds.get(reply.kind, NoVerdictError)
    raise kind(reply.message if reply.kind else f"{request.subject} raised {reply.message}")

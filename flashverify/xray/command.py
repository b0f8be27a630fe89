"""The command `flashverify xray`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import msgspec

from flashverify.child_process import child_environment
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError
from flashverify.subjects.finding import require_findable
from flashverify.subjects.registry import has_gpu
from flashverify.xray.cases import LENGTH
from flashverify.xray.record import record_text
from flashverify.xray.request import Answer, Failed, Request

__all__ = ["answered", "xray_command"]

_LIMIT = 3600.0
"""Seconds that an x-ray may take."""


@click.command("xray", short_help="Count which key entered which row how often.")
@click.argument("subject", metavar="SUBJECT")
@click.option("--case", metavar="CASE", default="", help="its text, 'fv1 ...' [default: causal, 256 x 256, D = 64]")
@click.option(
    "--length", metavar="N", type=click.IntRange(min=1), help="rows and keys of the default case [default: 256]"
)
@click.option("--mask", metavar="causal|full", default="", help="of the default case [default: causal]")
@click.option("--out", metavar="DIR", help="where xray.png and xray.json go [default: flashverify-out/xray-SUBJECT]")
@click.option("--device", metavar="auto|cpu|cuda", default="auto", help="where the subject runs [default: auto]")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def xray_command(
    subject: str, case: str, length: int | None, mask: str, out: str | None, device: str, as_json: bool
) -> int:
    """Count which key entered which row how often, forward and backward, against the declared mask: words and a picture.

    Exit code 1 is: a mask in effect differs from the declared one.
    """
    if case and (length or mask):
        raise UsageError("--case is not accepted together with --length or --mask: a case has both")
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: one of auto, cpu, cuda")
    if device == "cuda" and not has_gpu():
        raise UsageError("device='cuda' is not accepted: this machine has no NVIDIA GPU; use cpu or auto")
    require_findable(subject)
    where = ("cuda" if has_gpu() else "cpu") if device == "auto" else device
    folder = out or os.path.join("flashverify-out", f"xray-{_slug(subject)}")
    reply = _ask(
        Request(subject=subject, case=case, length=length or LENGTH, mask=mask, out=folder, device=where), where
    )
    record = reply.record
    code = 1 if record.differences else 0
    if as_json:
        files = {"picture": reply.picture, "data": reply.data, "exit_code": code}
        click.echo(json.dumps(msgspec.to_builtins(record) | files))
    else:
        click.echo(f"{record_text(record)}\npicture: {reply.picture}\ndata: {reply.data}")
    return code


def _ask(request: Request, device: str) -> Answer:
    """The answer of a process in the right mode of Triton.

    Raises:
        FlashverifyError: the case or the subject is not accepted, the subject raised, or the process died.
    """
    done = subprocess.run(
        (sys.executable, "-P", "-m", "flashverify.xray.child"),
        input=msgspec.json.encode(request),
        capture_output=True,
        env=child_environment(interpret=device == "cpu"),
        timeout=_LIMIT,
        check=False,
    )
    try:
        reply = msgspec.json.decode(done.stdout, type=Answer | Failed)
    except msgspec.MsgspecError as error:
        tail = done.stderr.decode(errors="replace").strip()[-800:]
        raise NoVerdictError(f"the process of {request.subject} ended with {done.returncode}: {tail}") from error
    return answered(request.subject, reply)


def answered(subject: str, reply: Answer | Failed) -> Answer:
    """The answer, or what stood in its way as an error: ours where the case or the subject is not accepted.

    Raises:
        FlashverifyError: there is no answer; a `NoVerdictError` where the subject raised.
    """
    if isinstance(reply, Answer):
        return reply
    kinds = {"SubjectLoadError": SubjectLoadError, "UsageError": UsageError, "CaseTextError": UsageError}
    kind = kinds.get(reply.kind, NoVerdictError)
    raise kind(reply.message if reply.kind else f"{subject} raised {reply.message}")


def _slug(subject: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in subject)[-80:].lstrip(".")

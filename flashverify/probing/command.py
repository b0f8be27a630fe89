"""The command `flashverify probe`."""

from __future__ import annotations

import json

import click
import msgspec

from flashverify.errors import UsageError
from flashverify.subjects.finding import require_findable
from flashverify.subjects.registry import has_gpu

__all__ = ["probe_command"]

_TRIAL_LIMIT = 60.0
"""Seconds that one question may take, at least."""


@click.command("probe", short_help="Work out the declaration of a subject.")
@click.argument("subject", metavar="SUBJECT")
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=1),
    default=60.0,
    help="after the subject is loaded [default: 60]",
)
@click.option("--device", metavar="auto|cpu|cuda", default="auto", help="where the subject runs [default: auto]")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def probe_command(subject: str, seconds: float, device: str, as_json: bool) -> int:
    """Work out the declaration of a subject by trying, and print it as code to paste, each field beside the declared one.

    It says what runs, what comes back, and the smallest numerical form that explains every case that it saw. What loosens a bound is never
    part of that code. Exit code 1 is: something looks like a defect, not like a convention.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: one of auto, cpu, cuda")
    if device == "cuda" and not has_gpu():
        raise UsageError("device='cuda' is not accepted: this machine has no NVIDIA GPU; use cpu or auto")
    require_findable(subject)
    from flashverify.probing.asking import Process
    from flashverify.probing.survey import survey
    from flashverify.probing.text import inference_text

    where = ("cuda" if has_gpu() else "cpu") if device == "auto" else device
    with Process(subject, where, max(_TRIAL_LIMIT, seconds)) as process:
        loaded = process.start()
        found = survey(process, loaded, spec=subject, device=where, seconds=seconds)
    shown = (
        json.dumps(msgspec.to_builtins(found) | {"exit_code": found.exit_code}) if as_json else inference_text(found)
    )
    click.echo(shown)
    return found.exit_code

"""The command `flashverify train`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from flashverify.campaign.commands.signals import ending_signals
from flashverify.campaign.supervisor.process import exit_name
from flashverify.child_process import child_environment
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError
from flashverify.subjects.finding import require_findable
from flashverify.subjects.registry import has_gpu
from flashverify.training.child import Failed
from flashverify.training.page import page
from flashverify.training.record import Record
from flashverify.training.settings import DTYPES, Request, Settings

__all__ = ["answered", "train_command"]

_ON_GPU: dict[str, Any] = {"length": 128, "batch": 4, "heads": 4, "dim": 64}
_MINUTES = 3.0


@click.command("train", short_help="Train a small transformer, judge each step.")
@click.option("--subject", metavar="SPEC", default="bundled", help="registered name or module:name [default: bundled]")
@click.option("--dtype", metavar="|".join(DTYPES), default="bf16", help="of q, k, v and O [default: bf16]")
@click.option("--dropout", metavar="P", type=click.FloatRange(0, 1, max_open=True), default=0.0, help="[default: 0]")
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help="steps to take; without --minutes in any time")
@click.option("--minutes", metavar="M", type=click.FloatRange(min=0, min_open=True), help="of training [default: 3]")
@click.option(
    "--seed", metavar="N", type=click.IntRange(0, 2**32), default=0, help="of weights, text and dropout [default: 0]"
)
@click.option("--length", metavar="N", type=click.IntRange(2, 4096), help="characters [default: 48, 128 on a GPU]")
@click.option("--batch", metavar="N", type=click.IntRange(1, 256), help="sequences [default: 2, 4 on a GPU]")
@click.option("--heads", metavar="N", type=click.IntRange(1, 64), help="of attention [default: 2, 4 on a GPU]")
@click.option("--dim", metavar="D", type=click.IntRange(1, 256), help="channels of a head [default: 16, 64 on a GPU]")
@click.option("--layers", metavar="N", type=click.IntRange(1, 16), default=2, help="of the model [default: 2]")
@click.option("--device", metavar="auto|cpu|cuda", default="auto", help="where the subject runs [default: auto]")
@click.option(
    "--out", metavar="DIR", help="where training.png and .json go [default: flashverify-out/training-SUBJECT]"
)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object on stdout")
def train_command(
    subject: str,
    dtype: str,
    steps: int | None,
    minutes: float | None,
    device: str,
    out: str | None,
    as_json: bool,
    **sizes: Any,
) -> int:
    """Train a small transformer with a subject's attention, and hold every step against float64 at the same weights.

    The text is packaged. Every element of O, dQ, dK and dV is judged by its bound, a fraction that is common to all steps by a confidence
    interval, gradients of weights and losses by bands to first order (docs/training.md). Exit code 1 is: something is outside. Ctrl-C
    ends after the step at hand, with what is known.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device={device!r} is not accepted: one of auto, cpu, cuda")
    if device == "cuda" and not has_gpu():
        raise UsageError("device='cuda' is not accepted: this machine has no NVIDIA GPU; use cpu or auto")
    if dtype not in DTYPES:
        raise UsageError(f"dtype={dtype!r} is not accepted: one of {', '.join(DTYPES)}")
    require_findable(subject)
    where = ("cuda" if has_gpu() else "cpu") if device == "auto" else device
    defaults = _ON_GPU if where == "cuda" else {}
    settings = Settings(
        subject=subject,
        device=where,
        dtype=dtype,
        steps=steps,
        minutes=_MINUTES if steps is None and minutes is None else minutes,
        **{**defaults, **{name: size for name, size in sizes.items() if size is not None}},
    )
    folder = Path(out or os.path.join("flashverify-out", f"training-{_slug(subject)}"))
    record, code = _trained(Request(settings=settings, folder=str(folder)))
    files = {"data": folder / "training.json"} | ({"picture": folder / "training.png"} if record.steps else {})
    if as_json:
        told = {"exit_code": code} | {name: str(path) for name, path in files.items()}
        click.echo(msgspec.json.encode(msgspec.to_builtins(record) | told).decode())
    else:
        click.echo("\n".join([page(record), *(f"{name}: {path}" for name, path in files.items())]))
    return code


def _trained(request: Request) -> tuple[Record, int]:
    """The record of a process in the right mode of Triton, and the exit code; a signal ends the training after the step at hand."""
    signalled: list[int] = []
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "flashverify.training.child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(interpret=request.settings.device == "cpu"),
    )

    def stop(code: int) -> None:
        signalled.append(code)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)

    with ending_signals(stop), process:
        printed, _ = process.communicate(msgspec.json.encode(request))
    record = answered(request.settings.subject, printed, process.returncode)
    if record.interrupted:
        return record, signalled[0] if signalled else 130
    return record, record.exit_code


def answered(subject: str, printed: bytes, code: int) -> Record:
    """The record that a process printed.

    Args:
        subject: as it was asked for.
        printed: by the process.
        code: that it ended with.

    Raises:
        FlashverifyError: there is none; a `UsageError` where the subject or the settings are not accepted.
    """
    try:
        reply = msgspec.msgpack.decode(printed, type=Record | Failed)
    except msgspec.MsgspecError as error:
        raise NoVerdictError(
            f"the process of {subject} ended with {exit_name(code)} before it said anything"
        ) from error
    if isinstance(reply, Record):
        return reply
    kinds = {"SubjectLoadError": SubjectLoadError, "UsageError": UsageError}
    raise kinds.get(reply.kind, NoVerdictError)(reply.message)


def _slug(subject: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in subject)[-80:].lstrip(".")

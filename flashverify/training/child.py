"""The process of a training: a request as JSON on stdin, the record in MessagePack, which has infinities, on stdout, progress on stderr.

The mode of Triton is set in its environment, before anything is imported. SIGINT ends the training after the step at hand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.worker.guard import guard_process
from flashverify.errors import FlashverifyError, UsageError
from flashverify.training.settings import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.training.record import Record, Step

__all__ = ["Failed", "answer", "main"]

_PROGRESS = 5.0
"""Seconds between lines of progress."""


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why there is no record: the kind of our own error, and what it says."""

    kind: str
    message: str


def answer(request: Request, stopped: Callable[[], bool]) -> Record:
    """Trains, and writes `training.json` and `training.png` into the folder of the request.

    Args:
        request: the settings and the folder.
        stopped: whether somebody ended it.

    Raises:
        FlashverifyError: the subject cannot be loaded, does not accept the layers, or raised in the first step.
    """
    from flashverify.subjects import has_gpu, load_subject
    from flashverify.training.course import train
    from flashverify.training.picture import draw

    settings = request.settings
    subject = load_subject(settings.subject)
    if subject.device() == "cuda" and not has_gpu():
        raise UsageError(f"subject={settings.subject!r} is not accepted: it needs an NVIDIA GPU")
    if subject.device() != settings.device:  # a subject of the CPU trains there, whatever the machine has
        settings = msgspec.structs.replace(settings, device=subject.device())
    record = train(subject, settings, told=_Progress(), stopped=stopped)
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "training.json").write_bytes(msgspec.json.encode(record))
    if record.steps:
        draw(record, folder / "training.png")
    return record


class _Progress:
    """A line on stderr every few seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, step: Step) -> None:
        if time.monotonic() - self._last >= _PROGRESS:
            self._last = time.monotonic()
            ratio = max((one.ratio for one in step.outputs), default=float("nan"))
            text = f"step {step.number + 1}: loss {step.loss:.3f}, float64 at the same weights {step.loss - step.same_weights:+.1e} off it"
            print(f"{text}, worst error over bound {ratio:.2g}", file=sys.stderr, flush=True)


def main() -> None:
    """Train once."""
    asked = False
    guard_process()

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGINT, stop)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if request.settings.device == "cpu":
        from flashverify.interpreter import faithful

        context = faithful()
    reply: Record | Failed
    try:
        with context:
            reply = answer(request, lambda: asked)
    except FlashverifyError as error:
        reply = Failed(kind=type(error).__name__, message=str(error))
    out.write(msgspec.msgpack.encode(reply))


if __name__ == "__main__":
    main()

"""A process that x-rays a subject: a request as JSON on stdin, the answer as one JSON object on stdout.

The mode of Triton is set in its environment, before anything is imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from flashverify.errors import FlashverifyError
from flashverify.xray.request import Answer, Failed, Request

__all__ = ["answer", "main"]


def answer(request: Request) -> Answer:
    """X-rays the subject and writes `xray.png` and `xray.json` into the folder of the request.

    Raises:
        FlashverifyError: the subject cannot be loaded, or the case is not accepted.
        Exception: whatever the subject raises.
    """
    from flashverify.case.memory.materialize import materialize
    from flashverify.case.text import parse_case
    from flashverify.errors import UsageError
    from flashverify.subjects import has_gpu, load_subject
    from flashverify.xray.cases import default_case
    from flashverify.xray.difference import record_of
    from flashverify.xray.measure import measure
    from flashverify.xray.picture import draw

    subject = load_subject(request.subject)
    if subject.device() == "cuda" and not has_gpu():
        raise UsageError(f"subject={request.subject!r} is not accepted: it needs an NVIDIA GPU")
    if request.case:
        case = parse_case(request.case)
        reason = subject.supports.refusal(case)
        if reason is not None:
            raise UsageError(f"case={request.case!r} is not accepted by {subject.name}: {reason}")
    else:
        case = default_case(subject.supports, length=request.length, mask=request.mask)
    problem, _arena = materialize(case, subject.device())
    xray = measure(subject, problem)
    record, folder = record_of(xray), Path(request.out)
    folder.mkdir(parents=True, exist_ok=True)
    draw(xray, folder / "xray.png")
    (folder / "xray.json").write_bytes(msgspec.json.encode(record))
    return Answer(record=record, picture=str(folder / "xray.png"), data=str(folder / "xray.json"))


def main() -> None:
    """Answer one request."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if request.device == "cpu":
        from flashverify.interpreter import faithful

        context = faithful()
    reply: Answer | Failed
    try:
        with context:
            reply = answer(request)
    except FlashverifyError as error:
        reply = Failed(kind=type(error).__name__, message=str(error))
    except Exception as error:
        reply = Failed(kind="", message=f"{type(error).__name__}: {str(error)[:500]}")
    out.write(msgspec.json.encode(reply))


if __name__ == "__main__":
    main()

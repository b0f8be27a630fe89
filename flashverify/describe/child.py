"""A process that describes a subject: a request as JSON on stdin, the answer as one JSON object on stdout.

The mode of Triton is set in its environment, before anything is imported.
"""

from __future__ import annotations

import os
import sys

import msgspec

from flashverify.describe.record import Answer, Failed, Request
from flashverify.errors import FlashverifyError

__all__ = ["main"]


def main() -> None:
    """Answer one request."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    reply: Answer | Failed
    try:
        from flashverify.describe.describe import described
        from flashverify.subjects import load_subject

        subject = load_subject(request.subject)
        reply = Answer(description=described(request.subject, subject, request.device, request.seed))
    except FlashverifyError as error:
        reply = Failed(kind=type(error).__name__, message=str(error))
    except Exception as error:
        reply = Failed(kind="", message=f"{type(error).__name__}: {str(error)[:500]}")
    out.write(msgspec.json.encode(reply))


if __name__ == "__main__":
    main()

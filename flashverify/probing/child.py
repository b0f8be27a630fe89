"""The process that runs the subject of a probe: a question a line on stdin, an answer a line on stdout.

The mode of Triton is set in its environment, before anything is imported.
"""

from __future__ import annotations

import contextlib
import os
import sys

import msgspec

from flashverify.probing.questions import Question

__all__ = ["main"]


def main() -> None:
    """Answer questions until stdin ends."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    device = sys.argv[1]
    context: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if device == "cpu":
        from flashverify.interpreter import Sanitizer, faithful

        context = faithful(Sanitizer)
    from flashverify.probing.answering import Answering

    answering = Answering()
    with context:
        for line in sys.stdin.buffer:
            question = msgspec.json.decode(line, type=Question)
            out.write(msgspec.json.encode(answering.ask(question)) + b"\n")


if __name__ == "__main__":
    main()

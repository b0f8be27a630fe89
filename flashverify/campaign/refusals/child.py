"""A process that runs a subject outside its declaration: a request as JSON on stdin, a line when a case begins and one when it has ended.

The mode of Triton is set in its environment, before anything is imported.
"""

from __future__ import annotations

import os
import sys

import msgspec

from flashverify.campaign.refusals.record import Asked, Begun, Ended

__all__ = ["main"]


def main() -> None:
    """Run the cases in order; leave out those that are done."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    from flashverify.campaign.refusals.draws import outside_cases
    from flashverify.campaign.refusals.judging import judge_outside
    from flashverify.campaign.toolkit import bundled
    from flashverify.case.text import format_case

    with bundled.open(asked.device, plain=False, numerics=asked.numerics):
        subject = bundled.load(asked.subject)
        for case, reason in outside_cases(subject.supports, device=asked.device, seed=asked.seed, each=asked.each):
            text = format_case(case)
            if text in asked.done:
                continue
            out.write(msgspec.json.encode(Begun(text, reason)) + b"\n")
            try:
                ended = judge_outside(subject, case)
            except Exception as error:  # the harness says nothing about a case that it cannot judge
                ended = Ended("not judged", f"{type(error).__name__}: {str(error)[:300]}")
            out.write(msgspec.json.encode(ended) + b"\n")


if __name__ == "__main__":
    main()

"""A process that looks for repairs: a request as JSON on stdin, the answer as one JSON object on stdout.

Kernels are interpreted: the mode of Triton is set in its environment, before anything is imported.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.repairing.record import Answer, Failed, Request
from flashverify.campaign.supervisor.first_cases import inability_in
from flashverify.campaign.toolkit import Toolkit, load_toolkit
from flashverify.case.text import parse_case
from flashverify.errors import FlashverifyError, NoVerdictError, UsageError
from flashverify.judge.verdict import Status
from flashverify.repair.confinement import confine

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.judge.verdict import CaseResult

__all__ = ["answer", "main"]

_WRONG_VALUES = ("accuracy", "nonfinite")
"""Checks that say which elements are wrong."""


def answer(request: Request, toolkit: Toolkit, *, confined: Callable[[], None] = lambda: None) -> Answer:
    """Judges the case, then tries edits of the subject's source.

    Args:
        request: what is asked.
        toolkit: that knows the subject.
        confined: called before the first edit.

    Raises:
        FlashverifyError: the subject cannot be loaded, does not accept a case, or the harness failed.
    """
    subject = toolkit.load(request.subject)
    case, first = parse_case(request.case), parse_case(request.first) if request.first else None
    if first is not None and request.stored_first and toolkit.refusal(subject, first) is not None:
        first = None
    for name, each in (("case", case), ("first", first)):
        if each is not None and (reason := toolkit.refusal(subject, each)) is not None:
            raise UsageError(f"{name}={str(each)!r} is not accepted by {subject.name}: {reason}")
    check = (
        request.check if request.check in _WRONG_VALUES else ""
    )  # where another one failed, values may be wrong as well
    result = toolkit.judge(subject, case, str(PlanName.of_check(check)))
    found = Answer(subject=result.subject, evidence=result.evidence)
    why = _no_wrong_value(result)
    if why:
        return msgspec.structs.replace(found, why=why, able=inability_in(result) is None)
    begun = time.monotonic()
    confined()
    repairs = tuple(toolkit.repairs(subject, case, first=first, seconds=request.seconds))
    took = time.monotonic() - begun
    if repairs:
        return msgspec.structs.replace(found, repairs=repairs, seconds=took)
    right = "the subject right on this case and on further ones"
    if took >= request.seconds:
        why = f"in {request.seconds:g} s no change of one place was found that makes {right}"
    else:
        why = f"none of the changes of one place that are tried makes {right}"
    return msgspec.structs.replace(found, why=why, seconds=took)


def _no_wrong_value(result: CaseResult) -> str:
    """Why there is nothing to repair, in words; empty where an output has wrong values.

    Raises:
        NoVerdictError: the harness failed.
    """
    lacks = inability_in(result)
    if lacks is not None:
        return f"the subject could not run: {lacks.reason}. {lacks.advice}"
    if any(failure.check in _WRONG_VALUES for failure in result.failures):
        return ""
    failed = {failure.check: failure.message for failure in reversed(result.failures)}
    if failed:
        check, message = next(reversed(failed.items()))
        others = f", and {', '.join(name for name in failed if name != check)}" if len(failed) > 1 else ""
        return f"no output has a wrong value to make right: what fails is {check}{others}: {message}"
    broken = next((v for v in result.verdicts if v.status is Status.ERROR), None)
    if broken is not None:
        raise NoVerdictError(f"{broken.message}\n{broken.traceback}".rstrip())
    return "the subject is right on this case"


def main() -> None:
    """Answer one request."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    reply: Answer | Failed
    try:
        toolkit = load_toolkit(request.toolkit)
        with toolkit.open("cpu", plain=False, numerics=request.numerics):
            reply = answer(request, toolkit, confined=confine)
    except FlashverifyError as error:
        reply = Failed(kind=type(error).__name__, message=str(error))
    except Exception as error:
        reply = Failed(kind="", message=f"{type(error).__name__}: {str(error)[:500]}")
    out.write(msgspec.json.encode(reply))


if __name__ == "__main__":
    main()

"""The process that looks for repairs, started and asked."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from flashverify.campaign.repairing.record import Answer, Failed, Request
from flashverify.campaign.supervisor.process import exit_name
from flashverify.child_process import child_environment
from flashverify.errors import NoVerdictError, SubjectLoadError, UsageError

__all__ = ["ask"]

_LIMIT = 900.0
"""Seconds that it may take besides those for which it tries edits: to import, to judge the case, and for a last edit."""


def ask(request: Request) -> Answer:
    """The answer of a process that interprets kernels.

    Raises:
        FlashverifyError: the subject or a case is not accepted, the harness failed, or the process died or did not end.
    """
    try:
        done = subprocess.run(
            (sys.executable, "-P", "-m", "flashverify.campaign.repairing.child"),
            input=msgspec.json.encode(request),
            capture_output=True,
            env=child_environment(interpret=True),
            timeout=request.seconds + _LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoVerdictError(f"the process of {request.subject} did not end within {error.timeout:g} s") from error
    try:
        reply = msgspec.json.decode(done.stdout, type=Answer | Failed)
    except msgspec.MsgspecError as error:
        tail = done.stderr.decode(errors="replace").strip()[-800:]
        raise NoVerdictError(
            f"the process of {request.subject} died with {exit_name(done.returncode)}, on the case or on a change of the source; "
            f"`flashverify replay` says whether the case does that{': ' if tail else ''}{tail}"
        ) from error
    if isinstance(reply, Answer):
        return reply
    kinds = {"SubjectLoadError": SubjectLoadError, "UsageError": UsageError, "CaseTextError": UsageError}
    kind = kinds.get(reply.kind, NoVerdictError)
    raise kind(reply.message if reply.kind else f"{request.subject} raised {reply.message}")

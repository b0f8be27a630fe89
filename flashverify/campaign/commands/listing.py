"""Cases of a subject, listed in a process of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from flashverify.campaign.protocol import CaseList, CasesListed, WorkerFailed
from flashverify.campaign.supervisor.probe import START_LIMIT, failure_of
from flashverify.campaign.supervisor.process import ProcessSetup, WorkerProcess
from flashverify.errors import NoVerdictError

__all__ = ["list_cases"]


def list_cases(task: CaseList, setup: ProcessSetup) -> tuple[str, ...]:
    """Text forms of cases, drawn in a process of their own.

    Raises:
        FlashverifyError: a subject cannot be loaded, or the process died.
    """
    with tempfile.TemporaryDirectory(prefix="flashverify-list-") as folder:
        process = WorkerProcess(setup, Path(folder) / "inflight.json")
        try:
            process.send(task)
            for _ in range(int(START_LIMIT)):
                dead = process.code()
                for event in process.wait(1.0):
                    if isinstance(event, CasesListed):
                        return event.cases
                    if isinstance(event, WorkerFailed):
                        raise failure_of(event)
                if dead is not None:
                    break
            raise NoVerdictError(f"no cases for {task.subject!r}; the worker printed: {process.printed()}")
        finally:
            process.close()

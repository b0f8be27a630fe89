"""The processes in which mutants are judged: one a thread, kept over many mutants, replaced after a crash, a hang or too much memory.

They are no workers of the campaign's pool: `flashverify.campaign.supervisor.pool` says why there are two supervisors.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import msgspec

from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import Judge, Judged
from flashverify.campaign.supervisor.probe import Probe
from flashverify.case.case import Case
from flashverify.case.text import format_case
from flashverify.judge.verdict import CaseResult, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.supervisor.process import ProcessSetup

__all__ = ["Clean", "MutantProbe", "StoppedError", "troubles"]


class StoppedError(Exception):
    """The run was asked to stop while a case ran."""


class MutantProbe(Probe):
    """A `Probe` that gives up when the run stops.

    Args:
        setup: toolkit, device and time limit of a case.
        memory: bytes that the process may use; None is no limit.
        stopped: whether the run stops; asked about once a second.
    """

    def __init__(self, setup: ProcessSetup, memory: int | None, stopped: Callable[[], bool]) -> None:
        super().__init__(msgspec.structs.replace(setup, memory=memory), self._watch)
        self._stopped = stopped

    def ask(self, task: Judge) -> Judged:
        """The verdicts on the case; a crash, a hang or too much memory is a failing verdict.

        Raises:
            FlashverifyError: the subject cannot be loaded, or the harness failed.
            StoppedError: the run stops.
        """
        judged = self.judge(task)
        if self._setup.device != "cpu" and any(v.check == "exception" for v in judged.result.failures):
            self.reset()  # after an illegal address the device refuses everything else that this process asks of it
        return judged

    def warm(self, subject: str) -> None:
        """Start the process where there is none, so that its start is not counted to a mutant.

        Args:
            subject: an unmutated subject.
        """
        if self._process is None:
            self.ask(Judge(subject, format_case(Case()), str(PlanName("only", "memory"))))

    def __enter__(self) -> Self:
        return self

    def _watch(self) -> None:
        if self._stopped():
            raise StoppedError


class Clean:
    """What the unmutated subjects say of a case; each case is judged once, whichever thread asks."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], CaseResult] = {}
        self._lock = threading.Lock()

    def judge(self, probe: MutantProbe, subject: str, case: str, plan: str) -> CaseResult:
        """The verdicts of the unmutated subject."""
        key = (subject, case, plan)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            found = probe.ask(Judge(subject, case, plan)).result
            with self._lock:
                self._known[key] = found
        return found


def troubles(result: CaseResult) -> str:
    """Why a result of an unmutated subject discredits what a mutant shows on the case; empty where it does not."""
    if result.unsupported is not None:
        return f"the unmutated subject does not accept {result.case!r}: {result.unsupported}"
    for verdict in result.verdicts:
        if verdict.status in (Status.FAIL, Status.ERROR):
            what = " ".join(part for part in (verdict.check, verdict.error, verdict.output) if part)
            return f"the unmutated subject fails too ({what}) on {result.case!r}: {verdict.message}"
    return ""

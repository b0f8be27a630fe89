"""Judging one case in a process of its own, so that a crash is an answer too."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from flashverify.campaign import environment
from flashverify.campaign.protocol import CaseList, CasesListed, Event, Judge, Judged, Ready, Started, WorkerFailed
from flashverify.campaign.supervisor.process import ProcessSetup, WorkerProcess, death_verdict, hang_verdict
from flashverify.errors import FlashverifyError, NoVerdictError, StoreError, SubjectLoadError, UsageError
from flashverify.judge.verdict import CaseResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["START_LIMIT", "Probe", "failure_of"]

_Answer = TypeVar("_Answer", Judged, CasesListed)
_TICK = 0.2
START_LIMIT = 300.0
"""Seconds that a worker may take to import torch, Triton and a subject."""


class Probe:
    """A child process that judges cases until one kills it; the next case then gets a fresh child.

    Args:
        setup: toolkit, device, time limit of a case and limit of memory.
        alive: called once a second or more often while a case runs.
    """

    def __init__(self, setup: ProcessSetup, alive: Callable[[], None] = lambda: None) -> None:
        self._setup, self._alive = setup, alive
        self._folder = tempfile.TemporaryDirectory(prefix="flashverify-probe-")
        self._process: WorkerProcess | None = None
        self._fresh = False

    def start(self) -> WorkerProcess:
        """The child, which begins to import what it needs."""
        if self._process is None:
            self._process = WorkerProcess(self._setup, Path(self._folder.name) / "inflight.json")
            self._fresh = True
        return self._process

    def judge(self, task: Judge, *, deadline: float = math.inf) -> Judged:
        """The verdicts on the case; a crash or a hang is a failing verdict.

        Args:
            task: the case.
            deadline: when to give it up, by `time.monotonic`.

        Raises:
            NoVerdictError: the deadline passed, or the harness failed.
            FlashverifyError: the subject cannot be loaded.
        """
        used = self._process is not None and not self._fresh
        answer = self._ask(task, Judged, deadline)
        if used and isinstance(answer, Verdict) and answer.error == "memory":
            self.reset()  # the cases before it may have filled the memory
            answer = self._ask(task, Judged, deadline)
        return self._lost(task, answer) if isinstance(answer, Verdict) else answer

    def cases(self, task: CaseList, *, deadline: float = math.inf) -> tuple[str, ...]:
        """Text forms of the cases that a task names; see `CaseList`.

        Raises:
            NoVerdictError: the deadline passed, or the process died.
            FlashverifyError: a subject cannot be loaded.
        """
        answer = self._ask(task, CasesListed, deadline)
        if isinstance(answer, Verdict):
            printed = self._process.printed() if self._process is not None else ""
            self.reset()
            raise NoVerdictError(f"no cases for {task.subject!r}: {answer.message}; the worker printed: {printed}")
        return answer.cases

    def _ask(self, task: Judge | CaseList, kind: type[_Answer], deadline: float) -> _Answer | Verdict:
        """The answer of the child; where it died or hung, that as a verdict."""
        process = self.start()
        self._fresh = False
        process.send(task)
        begun, starved = time.monotonic(), process.starved()
        limit, memory = START_LIMIT, self._setup.memory
        while True:
            try:
                events: list[Event] = process.wait(min(1.0 if memory is None else _TICK, self._setup.case_limit / 4))
                dead = process.code()
                if dead is not None:
                    events += process.read()
            except msgspec.MsgspecError as error:
                raise NoVerdictError(f"a worker sent something that is no event: {error}") from error
            for event in events:
                if isinstance(event, kind):
                    return event
                if isinstance(event, WorkerFailed):
                    self.reset()
                    raise failure_of(event)
                if isinstance(event, Started | Ready):
                    begun, starved = time.monotonic(), process.starved()
                    limit = self._setup.case_limit if isinstance(event, Started) else START_LIMIT
            if dead is not None:
                return death_verdict(dead, process.printed())
            if memory is not None and (taken := process.memory()) > memory:
                return death_verdict(0, "", taken)
            late = time.monotonic() - begun - limit
            if late > 0 and late > process.starved() - starved:
                return hang_verdict(limit)
            if time.monotonic() > deadline:
                self.reset()
                raise NoVerdictError("the time for the case is over")
            self._alive()

    def _lost(self, task: Judge, verdict: Verdict) -> Judged:
        assert self._process is not None
        note, printed = self._process.in_flight(), self._process.printed()
        self.reset()
        if note is None:
            raise NoVerdictError(
                f"a worker ended before it ran a case: {verdict.message}; it printed: {printed[-500:]}"
            )
        evidence = environment.evidence(self._setup.device, self._setup.numerics)
        return Judged(CaseResult(case=task.case, subject=note.name, evidence=evidence, verdicts=(verdict,)))

    def refresh(self) -> None:
        """The next case gets a child that judged nothing before."""
        if not self._fresh:
            self.reset()

    def reset(self) -> None:
        """The next case gets a fresh child."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reset()
        self._folder.cleanup()


def failure_of(event: WorkerFailed) -> FlashverifyError:
    """The exception that a worker reported, as one of ours."""
    kinds = {
        "SubjectLoadError": SubjectLoadError,
        "UsageError": UsageError,
        "CaseTextError": UsageError,
        "ConfigError": UsageError,
        "StoreError": StoreError,
    }
    return kinds.get(event.error, NoVerdictError)(event.message)

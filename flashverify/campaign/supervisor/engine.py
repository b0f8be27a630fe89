"""The engine: hands tasks to workers, stores what comes back, tells listeners. It knows no listener and imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.protocol import (
    Batch,
    CaseJudged,
    CaseList,
    CasesListed,
    Chunk,
    Event,
    OfFinding,
    PutOff,
    Ready,
    Reply,
    TaskDone,
    WorkerFailed,
)
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.deaths import Deaths
from flashverify.campaign.supervisor.events import FindingSeen, Finished, GpuSetAside, Progress, WorkerLost
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.first_cases import FirstCases
from flashverify.campaign.supervisor.gpu import processes
from flashverify.campaign.supervisor.indexing import Indexing
from flashverify.campaign.supervisor.leaving import Leaving
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.live import LiveFile
from flashverify.campaign.supervisor.probe import failure_of
from flashverify.campaign.supervisor.schedule import CampaignConfig, Schedule
from flashverify.campaign.supervisor.slots import EXPLAINING, Slot, starving
from flashverify.errors import SelfCheckError, StoreError, UsageError

if TYPE_CHECKING:
    from flashverify.judge.record import Summary
    from flashverify.judge.verdict import CaseResult

__all__ = ["Engine", "Listener"]

Listener = Callable[[msgspec.Struct], None]
_TICK = 0.2
_IN_FLIGHT_GRACE = 10.0


class Engine:
    """One campaign.

    Args:
        config: what to do.
        listeners: called with `FindingSeen`, `FindingMinimal`, `FindingReconsidered`, `FindingFolded`, `WorkerLost`, `GpuSetAside`, `Progress` and `Finished`.

    Raises:
        UsageError: the folder holds another run, or is in use.
        StoreError: the folder cannot be read or written.
    """

    def __init__(self, config: CampaignConfig, listeners: Sequence[Listener] = ()) -> None:
        self._config, self._reason, self._exit_code = config, "", 0
        self._listeners, self._live, self._next_progress = listeners, LiveFile(config.out), 0.0
        self._ledger = Ledger(config)
        self.store, self.tally = self._ledger.store, self._ledger.tally
        self._indexing = Indexing(config.out)
        self._first = FirstCases(resumed=self.tally.drawn > 0)
        self.budget = Budget(config.seconds, config.grace, before=self._ledger.journal.before)
        self._ledger.journal.clock(lambda: self.budget.elapsed)
        share, least = config.explain_share, config.explain_seconds
        self.explaining = Explaining(
            self.budget, config.workers, share=share, least=least, waits=lambda: starving(self._pool.slots)
        )
        self._pool, self._gpu = processes(config, self.store, self._ledger.journal.compiled, self._tell)
        self.problems = (*self._ledger.problems, *self._gpu.problems)
        self._schedule = Schedule(config, self._ledger.journal, self._gpu.compilers.readiness)
        self._explainer = Explainer(config, self._ledger, self.explaining, self._tell, lambda: self.budget.elapsed)
        self._leaving = Leaving(self._explainer, self.explaining, self.budget)
        self._deaths = Deaths(
            config, self._ledger, self._schedule, self._pool, self._keep, self._explainer.lost, self._tell
        )

    def stop(self, reason: str = "interrupted", exit_code: int = 130) -> None:
        """End at the next tick: store what is known, leave the cases in flight. Safe in a signal handler."""
        self._reason, self._exit_code = reason, exit_code

    def run(self) -> Summary:
        """Run until the budget is met.

        Raises:
            UsageError: a subject cannot be loaded.
            NoVerdictError: no worker could be started.
            StoreError: the disk refuses; what was stored before is intact.
        """
        try:
            try:
                while not self._over():
                    self._assign()
                    for slot, event in self._pool.events(_TICK):
                        self._handle(slot, event)
                    for loss in self._pool.losses(self._abandon_after()):
                        self._deaths.lost(loss)
                    self._gpu.tick(self.tally.judged, self.explaining, over=self._schedule.stopped)
                    self._indexing.tick()
                    if time.monotonic() >= self._next_progress:  # it asks the system for the memory of each worker
                        self._next_progress = time.monotonic() + _TICK
                        self._tell(self.progress())
                self._tell(self.progress())
            finally:
                self._indexing.close()
                self._pool.close()
                self._gpu.compilers.close()
                if self._config.host is not None:
                    self._config.host.close()
            return self._finish()
        finally:
            self.store.close((*self._pool.notes, *self._gpu.compilers.notes))

    def _over(self) -> bool:
        if self._reason == "interrupted" or self.budget.until_the_end == 0:
            self._reason = self._reason or "budget"
            return True
        self._reason = self._reason or self._deaths.ended or ("budget" if self.budget.left == 0 else "")
        if self._reason:
            self._schedule.stopped = True
        if self._pool.busy or self._searching:
            return False
        return not self._explainer.waits(searching=False)

    @property
    def _searching(self) -> bool:
        """Whether there are cases to judge, in a worker or still to be handed out."""
        again = self._deaths.wait and self._reason in ("", "budget")
        return self._pool.judging or again or self._schedule.cases_wait or self._schedule.draws_wait

    def _assign(self) -> None:
        if self._reason in ("", "budget"):
            self._deaths.hand_out()
        for number in self._pool.free():
            task = self._schedule.next(
                self._pool.judging,
                self.tally.quarantine,
                explain=lambda: self._explainer.next(self._searching),
                beside=self._beside,
            )
            if task is None:
                break
            self._pool.give(number, task)
            if isinstance(task, EXPLAINING):
                self._explainer.began(number, task)

    @property
    def _beside(self) -> bool:
        """Whether findings are explained while cases are judged: of a search always, of a matrix in the last part of its time."""
        if self._config.kind == "fuzz":
            return True
        left, seconds = self.budget.left, self._config.seconds
        return left is not None and seconds is not None and left <= self._config.explain_share * seconds

    def _handle(self, slot: Slot, event: Event) -> None:
        if isinstance(event, CaseJudged):
            assert isinstance(slot.task, Batch | Chunk)
            suspect = self._deaths.judged(slot)
            task = slot.task if suspect is None else suspect.task
            if isinstance(task, Batch | Chunk):
                for kept in self._first.take(self._schedule.answered(task, event.result), event.subject):
                    self._keep(*kept)
            if suspect is not None:
                self._deaths.survived(suspect)
            slot.answered += 1
            stop = self._schedule.stopped or bool(self._reason)
            fixed = not stop and suspect is None and isinstance(slot.task, Batch) and slot.task.fixed
            slot.left = fixed and self._leaving.due(beside=self._beside)
            slot.process.send(Reply(stop or slot.left))
            self._ledger.describe(event)
            self._gpu.judged(event)
        elif isinstance(event, CasesListed):
            assert isinstance(slot.task, CaseList)
            self._schedule.listed(slot.task.subject, event.cases, corpus=slot.task.corpus)
        elif isinstance(event, OfFinding):
            self._explainer.told(slot.number, event)
        elif isinstance(event, TaskDone):
            if isinstance(slot.task, Batch):
                stopped = self._schedule.stopped or bool(self._reason) or slot.left
                self._schedule.batch_ended(slot.task, stopped=stopped, put_off=slot.put_off)
            self._explainer.ended(slot.number)
            self._pool.done(slot)
        elif isinstance(event, PutOff):
            self._gpu.compilers.waits(event)
        elif isinstance(event, Ready):
            self._ledger.machine(event.environment)
            self._gpu.compilers.machine(event.environment)
        elif isinstance(event, WorkerFailed):
            self._failed(slot, event)

    def _keep(self, result: CaseResult, spec: str) -> None:
        self.explaining.judged(result.seconds)
        first = not self.tally.records
        changed = self._ledger.keep(result, spec, self.budget.elapsed)
        self._schedule.stored(result)
        for record, new in changed:
            if new:
                self._tell(FindingSeen(record, first=first))
                first = False
                most = self._config.max_findings
                if most is not None and len(self.tally.records) >= most:
                    self._reason = self._reason or "findings"

    def _failed(self, slot: Slot, event: WorkerFailed) -> None:
        if isinstance(error := failure_of(event), UsageError | StoreError):
            raise error
        if event.error == SelfCheckError.__name__:
            raise SelfCheckError(event.message)
        slot.failure = event.message

    def _abandon_after(self) -> float | None:
        """Seconds after which a case in flight is given up because the search is over; None while it is not."""
        over = self._reason == "findings" or self.budget.left == 0
        return min(_IN_FLIGHT_GRACE, self._config.case_limit) if over else None

    def _finish(self) -> Summary:
        self._deaths.end(self._reason or "budget")
        if self._reason != "interrupted":
            self._first.end()
        self._explainer.end()
        self._gpu.finish(self.explaining)
        reason = self._reason or "budget"
        summary = self._ledger.sum_up(self.budget.elapsed, reason, self._exit_code, self._schedule.part)
        self._tell(Finished(summary))
        return summary

    def progress(self) -> Progress:
        """Where the campaign stands."""
        found = self.tally.progress(self._ledger.restarts, self.budget.elapsed, self.budget.left, self._schedule.total)
        now, stats, workers = self.explaining, self._gpu.stats, self._pool.health()
        changes = {"explaining": now.active, "explaining_left": now.left, "stats": stats, "workers": workers}
        return msgspec.structs.replace(found, **changes)

    def _tell(self, event: msgspec.Struct) -> None:
        self._live(event)
        if isinstance(event, WorkerLost | GpuSetAside):
            self._ledger.lost(event, self.budget.elapsed)
        for listener in self._listeners:
            listener(event)

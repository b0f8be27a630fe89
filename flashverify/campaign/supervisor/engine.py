"""The engine: hands tasks to workers, stores what comes back, tells listeners. It knows no listener and imports no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from flashverify.campaign import environment
from flashverify.campaign.protocol import (
    Batch,
    CaseJudged,
    CaseList,
    CasesListed,
    Chunk,
    Event,
    Improved,
    Minimal,
    Minimise,
    Ready,
    Reply,
    TaskDone,
    WorkerFailed,
)
from flashverify.campaign.store.resume import check_resumable, recount
from flashverify.campaign.store.writer import RunStore, StoredRun
from flashverify.campaign.supervisor.events import FindingMinimal, FindingSeen, Finished, Progress, WorkerLost
from flashverify.campaign.supervisor.pool import Loss, Pool, Slot
from flashverify.campaign.supervisor.probe import failure_of
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.supervisor.schedule import CampaignConfig, Schedule
from flashverify.campaign.supervisor.tally import Tally
from flashverify.errors import NoVerdictError, SelfCheckError, UsageError
from flashverify.judge.record import RunRecord, Summary
from flashverify.judge.verdict import CaseResult

__all__ = ["Engine", "Listener"]

Listener = Callable[[msgspec.Struct], None]
_TICK = 0.2
_IN_FLIGHT_GRACE = 10.0


class Engine:
    """One campaign.

    Args:
        config: what to do.
        listeners: called with `FindingSeen`, `FindingMinimal`, `WorkerLost`, `Progress` and `Finished`.

    Raises:
        UsageError: the folder holds another run, or is in use.
        StoreError: the folder cannot be read or written.
    """

    def __init__(self, config: CampaignConfig, listeners: Sequence[Listener] = ()) -> None:
        self._config = config
        self._listeners = listeners
        self._begun = time.monotonic()
        self._before = 0.0  # seconds of the calls that this one resumes
        self._reason = ""
        self._exit_code = 0
        self._fruitless = 0  # workers lost since a case was last judged
        self.restarts = 0
        self.problems: tuple[str, ...] = ()
        self.tally = Tally(smallest=config.kind == "run")
        self.store = RunStore(config.out)
        try:
            stored = self.store.read() if self.store.exists else None
            if stored is not None:
                check_resumable(stored, config)
            claims = self.store.claims()
            self._schedule = Schedule(config, self._claim, claims.batches)
            if stored is not None:
                self._resume(stored, claims.seconds)
            else:
                self._write_header()
        except BaseException:
            self.store.close()
            raise
        setup = ProcessSetup(config.toolkit, config.device, config.case_limit, numerics=config.numerics)
        self._pool = Pool(setup, [self.store.inflight_path(n) for n in range(config.workers)], config.memory)

    # --- beginning ---------------------------------------------------------------------------------------------------

    def _write_header(self) -> None:
        config = self._config
        found = environment.collect(config.device)
        self._header = RunRecord(
            config.kind, config.subjects, config.seed, found, config.command, time.time(), numerics=config.numerics
        )
        self.store.write_header(self._header)

    def _resume(self, stored: StoredRun, seconds: float) -> None:
        self._header, self._before = stored.record, seconds
        self.restarts = stored.summary.restarts if stored.summary else 0
        for record in recount(self.tally, stored, self._config, self._elapsed):
            self.store.write_finding(record)
        for record in self.tally.records.values():
            if not record.confirmation.repeats:
                self._schedule.wanted(record)
        self.problems = tuple(stored.problems)
        self.store.forget_summary()

    def _claim(self, batches: int) -> None:
        self.store.claim(batches, self._elapsed)

    # --- running -----------------------------------------------------------------------------------------------------

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
                        self._lost(loss)
                    self._tell(self.progress())
            finally:
                self._pool.close()
            return self._finish()
        finally:
            self.store.close(self._pool.notes)

    def _over(self) -> bool:
        if self._reason == "interrupted":
            return True
        if not self._reason and self._time_left == 0:
            self._reason = "budget"
        if self._reason:
            self._schedule.stopped = True
            if self._elapsed - self._before > (self._config.seconds or 0) + self._config.grace and self._time_left == 0:
                return True
        exhausted = self._schedule.stopped or self._config.kind == "run" or self._room() == 0
        return exhausted and self._schedule.idle and not self._pool.busy

    def _assign(self) -> None:
        for slot in self._pool.free():
            judging = any(s.task is not None and not isinstance(s.task, Minimise) for s in self._pool.slots)
            task = self._schedule.next(self._room(), judging, self._quarantine)
            if task is None:
                break
            self._pool.give(slot, task)

    def _room(self) -> int | None:
        if self._config.max_cases is None:
            return None
        tasks = ((s.task, s.answered) for s in self._pool.slots)
        given = sum(
            (task.examples if isinstance(task, Batch) else len(task.cases)) - answered
            for task, answered in tasks
            if isinstance(task, Batch | Chunk)
        )
        return max(0, self._config.max_cases - self.tally.drawn - given)

    def _quarantine(self, spec: str) -> tuple[str, ...]:
        return tuple(sorted(text for subject, text in self.tally.deadly if subject == spec))

    def _handle(self, slot: Slot, event: Event) -> None:
        if isinstance(event, CaseJudged):
            self._store(event.result, event.subject)
            self._fruitless = 0
            slot.answered += 1
            slot.process.send(Reply(self._schedule.stopped or bool(self._reason)))
            if event.form and event.result.subject not in self._header.form:
                forms = self._header.form | {event.result.subject: event.form}
                self._header = msgspec.structs.replace(self._header, form=forms)
                self.store.write_header(self._header)
        elif isinstance(event, CasesListed):
            assert isinstance(slot.task, CaseList)
            self._schedule.listed(slot.task.subject, event.cases, corpus=slot.task.corpus)
        elif isinstance(event, Improved):
            self.tally.replace(event.key, case=event.case, verdict=event.verdict)
        elif isinstance(event, Minimal):
            record = self.tally.replace(
                event.key,
                case=event.case,
                verdict=event.verdict,
                confirmation=event.confirmation,
                diagnosis=event.diagnosis,
            )
            self.store.write_finding(record)
            self._tell(FindingMinimal(record))
        elif isinstance(event, TaskDone):
            if isinstance(slot.task, Batch):
                self._schedule.batch_ended(slot.answered)
            self._pool.done(slot)
        elif isinstance(event, Ready) and event.environment.items() - self._header.environment.items():
            self._header = msgspec.structs.replace(
                self._header, environment=self._header.environment | event.environment
            )
            self.store.write_header(self._header)
        elif isinstance(event, WorkerFailed):
            self._failed(slot, event)

    def _store(self, result: CaseResult, spec: str) -> None:
        """Findings first, then the result."""
        known = set(self.tally.records)
        for record in self.tally.add(result, spec, self._elapsed):
            self.store.write_finding(record)
            self._schedule.wanted(record)
            if record.key not in known:
                self._tell(FindingSeen(record))
        self.store.append(result)

    def _failed(self, slot: Slot, event: WorkerFailed) -> None:
        if isinstance(error := failure_of(event), UsageError):
            raise error
        if event.error == SelfCheckError.__name__:
            raise SelfCheckError(event.message)
        slot.failure = event.message

    def _lost(self, loss: Loss) -> None:
        """A worker died, hung or grew too large: the case in flight is a finding, the rest of its task goes on."""
        task, note = loss.task, loss.in_flight
        if loss.abandoned:
            return
        self.restarts += 1
        self._fruitless += 1
        self._tell(WorkerLost(loss.worker, loss.verdict.message, note.case if note else ""))
        if note is not None and not loss.failure:
            evidence = self.tally.evidence.get(
                note.name, environment.evidence(self._config.device, self._config.numerics)
            )
            result = CaseResult(note.case, note.name, evidence, (loss.verdict,), seconds=round(loss.seconds, 3))
            self._store(result, note.subject)
            loss.answered += 1
        if isinstance(task, Minimise):
            record = self.tally.records[task.key]
            self.store.write_finding(record)
            self._schedule.wanted(record)
        elif task is not None:
            self._schedule.lost(task, loss.answered)
        if self._fruitless > self._config.workers + 3 or self.restarts > 10 + self.tally.drawn // 4:
            if not self.tally.drawn:
                raise NoVerdictError(
                    f"no worker survives: {loss.failure or loss.verdict.message}\n{loss.printed}".strip()
                )
            self._reason = self._reason or "workers"

    def _abandon_after(self) -> float | None:
        """Seconds after which a case in flight is given up because the time is over; None while it is not."""
        over = self._time_left == 0 and self._config.seconds is not None
        return min(_IN_FLIGHT_GRACE, self._config.case_limit) if over else None

    # --- ending ------------------------------------------------------------------------------------------------------

    def _finish(self) -> Summary:
        for record in self.tally.counted():
            self.store.write_finding(record)
        if self._config.kind == "run" and self.tally.drawn:
            names = {
                record.subject_spec: record.key.subject for record in self.tally.records.values()
            } | self._pool.names
            self.store.sort_results({(names.get(s, s), c): i for i, (s, c) in enumerate(self._schedule.order)})
        summary = self.tally.summary(self.restarts, self._elapsed, self._reason or "budget", self._exit_code)
        self._claim(self._schedule.batches)
        self.store.write_summary(summary)
        self._tell(Finished(summary))
        return summary

    @property
    def _elapsed(self) -> float:
        return self._before + time.monotonic() - self._begun

    @property
    def _time_left(self) -> float | None:
        if self._config.seconds is None:
            return None
        return max(0.0, self._config.seconds - (time.monotonic() - self._begun))

    def progress(self) -> Progress:
        """Where the campaign stands."""
        return self.tally.progress(self.restarts, self._elapsed, self._time_left, self._schedule.total)

    def _tell(self, event: msgspec.Struct) -> None:
        for listener in self._listeners:
            listener(event)

"""The workers of a campaign: started when needed, watched, replaced.

One thread watches all of them, because their tasks are batches that need no answer: results stream up and are stored one by one, and
a lost worker costs a part of its batch. A hunt of mutants (`flashverify.mutants.runner`) is a conversation instead, in which the next
case follows from the last verdict, so that there each process has a thread of its own that waits for it. Both share the process, its
protocol and the verdicts of its death (`process`), and a conversation with one process is `probe.Probe` in both.
"""

from __future__ import annotations

import selectors
import time
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.gpus import gpu_of_worker
from flashverify.campaign.protocol import Event, PutOff, Ready, Started, Task, WorkerFailed
from flashverify.campaign.store import disk
from flashverify.campaign.supervisor.events import WorkerHealth
from flashverify.campaign.supervisor.hosts import Host, LocalHost
from flashverify.campaign.supervisor.mps import Mps
from flashverify.campaign.supervisor.probe import START_LIMIT
from flashverify.campaign.supervisor.process import ProcessSetup, death_verdict, hang_verdict
from flashverify.campaign.supervisor.slots import EXPLAINING, Loss, Slot, work_of
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flashverify.judge.verdict import Verdict

__all__ = ["Pool"]

_MEASURED_EVERY = 0.25
"""Seconds between two looks at the memory of all workers; a look costs as much as a result."""
_NEAR = 0.75
"""Share of the memory that it may use from which a worker is replaced that has grown. Kernels, libraries and the caches of an allocator
fill half of it and stay so."""
_GROWN = 1.25
"""Times the memory after its first task that such a worker uses: one that began with as much would come back as it was."""


class Pool:
    """At most one process per entry of `notes`.

    Args:
        setup: what every worker shares.
        notes: where each worker announces its case.
        host: starts them.
        mps: lets them share a GPU.
    """

    def __init__(
        self, setup: ProcessSetup, notes: list[Path], host: Host | None = None, mps: Mps | None = None
    ) -> None:
        self._setup, self.notes, self._host = setup, notes, host or LocalHost()
        self._mps = mps or Mps(None)
        self._slots: dict[int, Slot] = {}
        self._aside: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._measured = float("-inf")

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The running workers."""
        return tuple(self._slots.values())

    @property
    def busy(self) -> bool:
        """Whether any worker has a task."""
        return any(slot.task is not None for slot in self._slots.values())

    @property
    def judging(self) -> bool:
        """Whether any worker judges or lists cases."""
        return any(slot.task is not None and not isinstance(slot.task, EXPLAINING) for slot in self._slots.values())

    def health(self) -> tuple[WorkerHealth, ...]:
        """How the running workers are."""
        now = time.monotonic()
        return tuple(
            WorkerHealth(
                slot.number,
                work_of(slot),
                round(now - slot.since, 1) if slot.task is not None else 0.0,
                slot.process.memory(),
                self.gpu(slot.number),
            )
            for slot in self.slots
        )

    def free(self) -> Iterator[int]:
        """Numbers of the workers that wait, running ones first; not running ones are started when they get a task."""
        waiting = [n for n, slot in self._slots.items() if slot.task is None and not slot.failure]
        yield from waiting
        yield from self._stopped()

    def _stopped(self) -> Iterator[int]:
        """Numbers of the workers that do not run and may."""
        numbers = (n for n in range(len(self.notes)) if self.gpu(n) not in self._aside)
        yield from (n for n in numbers if n not in self._slots)

    def vacant(self) -> list[int]:
        """The same as `free`, not running ones first."""
        stopped = list(self._stopped())
        return [*stopped, *(n for n in self.free() if n not in stopped)]

    def gpu(self, number: int) -> str:
        """That which a worker has for its own; empty for none."""
        return gpu_of_worker(number, self._setup.gpus)

    def set_aside(self, gpu: str) -> list[Loss]:
        """End the workers of a GPU, which is used no more."""
        self._aside.add(gpu)
        why = hang_verdict(0)
        return [self._remove(slot, why, abandoned=True) for slot in self.slots if self.gpu(slot.number) == gpu]

    def separate(self) -> tuple[list[Loss], bool]:
        """End the workers that share a context; whether those that start from here on share one again."""
        lost = [self._remove(slot, hang_verdict(0), abandoned=True) for slot in self.slots if slot.shares]
        return lost, self._mps.lost()

    def give(self, number: int, task: Task, *, fresh: bool = False) -> None:
        """Hand a task to a free worker; with `fresh` to a new process, which has a context of its own for it."""
        if fresh and number in self._slots:
            self._end(self._slots[number])
        slot = self._slots.get(number) or self._started(number, shares=not fresh)
        slot.task, slot.answered, slot.put_off, slot.left = task, 0, 0, False
        slot.sign(START_LIMIT)
        slot.process.send(task)

    def start(self) -> None:
        """Start every worker that does not run, before it has a task."""
        for number in tuple(self._stopped()):
            self._started(number)

    def _started(self, number: int, *, shares: bool = True) -> Slot:
        try:
            disk.remove(note := self.notes[number])
        except OSError as error:
            raise StoreError(f"cannot remove {note}: {error}") from error
        shared = self._mps.variables() if shares else {}
        setup = msgspec.structs.replace(self._setup, environment=self._setup.environment | shared)
        process = self._host.start(setup, number, note)
        self._slots[number] = slot = Slot(number, process, shares=bool(shared))
        for descriptor in process.descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ, number)
        return slot

    def done(self, slot: Slot) -> None:
        """The worker waits again.

        It ends where it has grown, so that no case meets the limit of memory for those before it, and where it has a context of its own
        beside a shared one.
        """
        slot.task = None
        if self._mps.shared and not slot.shares:
            self._end(slot)
            return
        used = slot.process.memory()
        slot.memory = slot.memory or used
        limit = self._setup.memory
        if limit is not None and used > _NEAR * limit and used > _GROWN * slot.memory:
            self._end(slot)

    def events(self, seconds: float) -> Iterator[tuple[Slot, Event]]:
        """What the workers say within `seconds`."""
        if not self._slots:
            time.sleep(min(seconds, 0.05))
            return
        ready = {key.data for key, _ in self._selector.select(seconds)}
        for slot in self._running():
            # Whatever a dead worker said was in the pipe before it was seen dead; it is read before it is counted as lost.
            slot.code = slot.process.code()
            if slot.number in ready or slot.code is not None:
                yield from ((slot, event) for event in self._read(slot))

    def _running(self) -> Iterator[Slot]:
        """The workers one by one, without those that whoever consumes this ends meanwhile."""
        for slot in self.slots:
            if self._slots.get(slot.number) is slot:
                yield slot

    def _read(self, slot: Slot) -> Iterator[Event]:
        try:
            events = slot.process.read()
        except msgspec.MsgspecError as error:
            slot.failure = f"a worker sent something that is no event: {error}"
            slot.process.kill()
            return
        for event in events:
            slot.sign(self._setup.case_limit if isinstance(event, Started) else START_LIMIT)
            slot.spoke = True
            slot.began = slot.began or not isinstance(event, Ready | WorkerFailed)
            slot.put_off += isinstance(event, PutOff)
            if not isinstance(event, Ready) or event.environment:
                yield event

    def losses(self, abandon_after: float | None) -> Iterator[Loss]:
        """Workers that died; those that hang or use too much memory are killed first.

        Args:
            abandon_after: kill cases that take longer, without a verdict.
        """
        now = time.monotonic()
        measuring = now - self._measured >= _MEASURED_EVERY
        self._measured = now if measuring else self._measured
        for slot in self._running():
            quiet = now - slot.since
            if slot.code is not None:
                verdict = death_verdict(slot.code, slot.process.printed())
            elif slot.hangs(now):
                verdict = hang_verdict(slot.limit)
            elif measuring and (limit := self._setup.memory) is not None and (used := slot.process.memory()) > limit:
                verdict = death_verdict(0, "", used)
            elif (
                abandon_after is not None
                and slot.task is not None
                and quiet > abandon_after
                and not isinstance(slot.task, EXPLAINING)
            ):
                yield self._remove(slot, hang_verdict(quiet), abandoned=True)
                continue
            else:
                continue
            yield self._remove(slot, verdict)

    def _end(self, slot: Slot) -> None:
        for descriptor in slot.process.descriptors:
            self._selector.unregister(descriptor)
        del self._slots[slot.number]
        slot.process.close()

    def _remove(self, slot: Slot, verdict: Verdict, *, abandoned: bool = False) -> Loss:
        self._end(slot)
        return Loss(
            worker=slot.number,
            task=slot.task,
            answered=slot.answered,
            in_flight=slot.process.in_flight(),
            verdict=verdict,
            printed=slot.process.printed(),
            failure=slot.failure,
            seconds=time.monotonic() - slot.since,
            gpu=self.gpu(slot.number),
            shared=slot.shares,
            began=slot.began,
            abandoned=abandoned,
            outage=slot.process.outage,
        )

    def close(self) -> None:
        """Kill every worker."""
        for slot in self.slots:
            self._remove(slot, hang_verdict(0), abandoned=True)
        self._mps.close()
        self._selector.close()

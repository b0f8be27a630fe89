"""A worker at work, and one that is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.campaign.protocol import (
    Attribute,
    CaseList,
    Compare,
    Mend,
    Minimise,
    Profile,
    Reconsider,
    Retry,
    Separate,
    Task,
)
from flashverify.campaign.supervisor.probe import START_LIMIT
from flashverify.judge.verdict import CaseResult

if TYPE_CHECKING:
    from collections.abc import Collection

    from flashverify.campaign.supervisor.hosts import Outage, Worker
    from flashverify.campaign.worker.inflight import Inflight
    from flashverify.judge.verdict import Verdict

__all__ = ["EXPLAINING", "Loss", "Slot", "starving", "work_of"]

EXPLAINING = (Minimise, Attribute, Compare, Separate, Profile, Reconsider, Mend, Retry)
"""Tasks that are about findings, not about cases of the campaign."""
_LOOKS = 1.0
"""Seconds between two looks at how long a process waited for a processor; a look costs as much as a result."""


@dataclass(slots=True)
class Slot:
    """One worker at work.

    Args:
        task: what it does; None while it waits.
        answered: results of this task that were stored.
        put_off: cases of this task that wait for a compiler.
        left: whether it was told to leave this batch, with which another worker goes on, to explain a finding.
        started: when its process was.
        since: when it last gave a sign of life.
        starved: seconds that its process had waited for a processor then, or a second before.
        looked: when that was asked.
        limit: seconds from then on until it counts as hanging, without those in which it waits for a processor.
        spoke: whether it gave a sign of life at all.
        began: whether it began any work.
        memory: resident bytes after its first task.
        failure: why it ends, where it said so.
        shares: whether it shares the context of its GPU with others.
        code: its exit code, once it is dead.
    """

    number: int
    process: Worker
    task: Task | None = None
    answered: int = 0
    put_off: int = 0
    left: bool = False
    started: float = field(default_factory=time.monotonic)
    since: float = 0.0
    starved: float = 0.0
    looked: float = float("-inf")
    limit: float = START_LIMIT
    spoke: bool = False
    began: bool = False
    memory: int = 0
    failure: str = ""
    shares: bool = False
    code: int | None = None

    def sign(self, limit: float) -> None:
        """It gave a sign of life, and has `limit` seconds for the next."""
        self.since, self.limit = time.monotonic(), limit
        if self.since - self.looked > _LOOKS:
            self.looked, self.starved = self.since, self.process.starved()

    def hangs(self, now: float) -> bool:
        """Whether it has a task and had its time for it."""
        late = now - self.since - self.limit
        return self.task is not None and late > 0 and late > self.process.starved() - self.starved


def starving(slots: Collection[Slot]) -> float:
    """The share of their time, since each of them began, in which workers waited for a processor."""
    now = time.monotonic()
    seconds = sum(now - slot.started for slot in slots)
    return min(1.0, sum(slot.process.starved() for slot in slots) / seconds) if seconds > 0 else 0.0


def work_of(slot: Slot) -> str:
    """In a word what a worker does."""
    if slot.task is None:
        return "waiting"
    if not slot.spoke:
        return "starting"
    if isinstance(slot.task, EXPLAINING):
        return "explaining"
    return "listing" if isinstance(slot.task, CaseList) else "judging"


@dataclass(slots=True, kw_only=True)
class Loss:
    """A worker that is gone.

    Args:
        gpu: that it had for its own; empty for none.
        shared: whether it shared a context with others.
        began: whether it began any work.
        abandoned: whether the end of the campaign killed it.
        outage: what ended it together with its neighbours; None where nothing did.
    """

    worker: int
    task: Task | None
    answered: int
    in_flight: Inflight | None
    verdict: Verdict
    printed: str
    failure: str
    seconds: float
    gpu: str = ""
    shared: bool = False
    began: bool = False
    abandoned: bool = False
    outage: Outage | None = None

    def result(self, note: Inflight, evidence: str) -> CaseResult:
        """That of the case in flight, whose verdict is the death of the worker."""
        return CaseResult(note.case, note.name, evidence, (self.verdict,), seconds=round(self.seconds, 3))

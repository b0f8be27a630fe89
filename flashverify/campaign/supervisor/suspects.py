"""Cases over which a worker died: none of them is a finding before it kills another worker that judges nothing else."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.campaign.plan_name import PlanName
from flashverify.campaign.protocol import Batch, Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.campaign.protocol import Task
    from flashverify.campaign.supervisor.slots import Loss
    from flashverify.campaign.worker.inflight import Inflight

__all__ = ["Suspect", "Suspects"]


@dataclass(slots=True)
class Suspect:
    """One such case.

    Args:
        case: as it was announced.
        task: that the worker had; the rest of it waits until the case is judged.
        answered: cases of that task that were judged.
        reason: of the death, in words.
        gpu: of the worker; empty for none.
    """

    case: Inflight
    task: Task | None
    answered: int
    reason: str
    gpu: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is a case of the campaign, not one that was tried to explain a finding."""
        return isinstance(self.task, Batch | Chunk)

    def alone(self) -> Chunk:
        """The task that judges it again, by the same plan where it has one."""
        plan = "fuzz" if isinstance(self.task, Batch) else str(PlanName.of_check(""))
        if isinstance(self.task, Chunk):
            return Chunk(self.case.subject, (self.case.case,), self.task.plan, self.task.origin)
        return Chunk(self.case.subject, (self.case.case,), plan)


class Suspects:
    """Those that wait, and those that are judged again."""

    def __init__(self) -> None:
        self._waiting: deque[Suspect] = deque()
        self._out: dict[int, Suspect] = {}

    def add(self, loss: Loss, case: Inflight) -> None:
        """A worker died over a case."""
        self._waiting.append(Suspect(case, loss.task, loss.answered, loss.verdict.message, loss.gpu))

    def again(self, suspect: Suspect) -> None:
        """What was to judge it ended before it did."""
        self._waiting.appendleft(suspect)

    @property
    def wait(self) -> bool:
        """Whether one is still to be handed out."""
        return bool(self._waiting)

    def take(self, worker: int, gpu: str, usable: Iterable[str]) -> Suspect | None:
        """The first one that a worker may judge: on another GPU than the one on which it killed a worker, where another one is usable."""
        for suspect in self._waiting:
            if gpu != suspect.gpu or not set(usable) - {suspect.gpu}:
                self._waiting.remove(suspect)
                self._out[worker] = suspect
                return suspect
        return None

    def taken(self, worker: int) -> Suspect | None:
        """The one that a worker judges, which it has no more from now on."""
        return self._out.pop(worker, None)

    def end(self) -> list[Suspect]:
        """Those that were not judged again; from now on there are none."""
        left = [*self._waiting, *self._out.values()]
        self._waiting.clear()
        self._out.clear()
        return left

    def judges(self, worker: int) -> bool:
        """Whether a worker judges one."""
        return worker in self._out

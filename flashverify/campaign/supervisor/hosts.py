"""Where the workers of a campaign run: the supervisor hands out tasks and keeps the journal alike, whoever starts the processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from flashverify.campaign.supervisor.process import ProcessSetup, WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    import msgspec

    from flashverify.campaign.protocol import Event
    from flashverify.campaign.worker.inflight import Inflight

__all__ = ["Host", "LocalHost", "Outage", "Worker"]


@dataclass(frozen=True, slots=True)
class Outage:
    """A place that lost all of its workers at once, for a reason that lies in none of their cases.

    Args:
        place: as the campaign names it.
        number: of the outages of that place, so that each counts once.
        reason: in words.
        final: whether no worker can be started there again.
    """

    place: str
    number: int
    reason: str
    final: bool


class Worker(Protocol):
    """A worker as the supervisor sees it: tasks in, events out. No method waits for the worker to judge."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait for."""

    @property
    def outage(self) -> Outage | None:
        """What ended it together with its neighbours; None where nothing did."""

    def send(self, message: msgspec.Struct) -> None:
        """One line to the worker; a dead one is noticed by `code()`."""

    def read(self) -> list[Event]:
        """Events that are there; raises msgspec.MsgspecError where something else is."""

    def printed(self) -> str:
        """The last lines that the worker printed."""

    def in_flight(self) -> Inflight | None:
        """The case that was announced and did not end; known once the worker is dead or closed."""

    def memory(self) -> int:
        """Resident bytes, 0 where unknown."""

    def starved(self) -> float:
        """Seconds that it waited for a processor since it began, 0 where unknown."""

    def code(self) -> int | None:
        """Its exit code once it is dead, None before."""

    def kill(self) -> None:
        """End the worker; `code()` says when it is dead."""

    def close(self) -> None:
        """End the worker where it still runs, with what its subject started, and release everything."""


class Host(Protocol):
    """Starts workers."""

    def start(self, setup: ProcessSetup, number: int, note: Path) -> Worker:
        """Worker `number`, in a new process.

        Args:
            setup: what all workers share.
            number: of the worker.
            note: where it announces its case, if it sees this machine's disk.
        """

    def compiling(self) -> Host:
        """What starts processes that compile ahead of these workers."""

    def close(self) -> None:
        """Nothing is started any more."""


class LocalHost:
    """Starts processes of this machine."""

    def start(self, setup: ProcessSetup, number: int, note: Path) -> WorkerProcess:
        """Worker `number`, which sees its own GPU alone."""
        return WorkerProcess(setup.of_worker(number), note)

    def compiling(self) -> LocalHost:
        """This: they share a folder of compiled kernels."""
        return self

    def close(self) -> None:
        """Nothing is held."""

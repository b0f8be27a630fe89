"""One process on every machine as if it were one: what is compiled ahead is compiled on each, since each keeps its own compiled kernels."""

from __future__ import annotations

import signal
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.protocol import Event, Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from flashverify.campaign.cluster.remote_worker import RemoteWorker
    from flashverify.campaign.supervisor.hosts import Outage
    from flashverify.campaign.supervisor.process import ProcessSetup
    from flashverify.campaign.worker.inflight import Inflight

__all__ = ["EverywhereHost", "EverywhereWorker"]


class EverywhereHost:
    """Starts such processes.

    Args:
        start: starts one on each machine.
    """

    def __init__(self, start: Callable[[ProcessSetup], Sequence[RemoteWorker]]) -> None:
        self._start = start

    def start(self, setup: ProcessSetup, number: int, note: Path) -> EverywhereWorker:  # noqa: ARG002 - all are alike
        """A new one."""
        return EverywhereWorker(self._start(setup))

    def compiling(self) -> EverywhereHost:
        """This."""
        return self

    def close(self) -> None:
        """Nothing is held."""


class EverywhereWorker:
    """Is prepared when all of its processes are, and dead when one of them is.

    Args:
        parts: the processes.
    """

    def __init__(self, parts: Sequence[RemoteWorker]) -> None:
        self._parts = tuple(parts)
        self._prepared: list[deque[Prepared]] = [deque() for _ in self._parts]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What to wait for."""
        return tuple(descriptor for part in self._parts for descriptor in part.descriptors)

    @property
    def outage(self) -> Outage | None:
        """What ended one of them together with its neighbours; None where nothing did."""
        return next((part.outage for part in self._parts if part.outage is not None), None)

    def send(self, message: msgspec.Struct) -> None:
        """One line to each."""
        for part in self._parts:
            part.send(message)

    def read(self) -> list[Event]:
        """Events that are there, with one `Prepared` for those of all; raises msgspec.MsgspecError where something else is."""
        found: list[Event] = []
        for part, prepared in zip(self._parts, self._prepared, strict=True):
            for event in part.read():
                if isinstance(event, Prepared):
                    prepared.append(event)
                else:
                    found.append(event)
        while self._prepared and all(self._prepared):
            found.append(_in_common([prepared.popleft() for prepared in self._prepared]))
        return found

    def printed(self) -> str:
        """The last lines that the first one printed which printed any."""
        return next(filter(None, (part.printed() for part in self._parts)), "")

    def in_flight(self) -> Inflight | None:
        """The case at which one that died was."""
        dead = (part.in_flight() for part in self._parts if part.died)
        return next((note for note in dead if note is not None), None)

    def memory(self) -> int:
        """Resident bytes of the largest one."""
        return max((part.memory() for part in self._parts), default=0)

    def starved(self) -> float:
        """Seconds that the one waited for a processor which waited least."""
        return min((part.starved() for part in self._parts), default=0.0)

    def code(self) -> int | None:
        """The exit code of the first one that is dead, None where none is."""
        if not self._parts:
            return -signal.SIGKILL
        return next((code for part in self._parts if (code := part.code()) is not None), None)

    def kill(self) -> None:
        """End all."""
        for part in self._parts:
            part.kill()

    def close(self) -> None:
        """End all and release everything."""
        self.kill()
        for part in self._parts:
            part.close()


def _in_common(answers: Sequence[Prepared]) -> Prepared:
    """The cases that every machine has compiled kernels for; of the counts the largest."""
    cases = set(answers[0].cases).intersection(*(answer.cases for answer in answers))
    return msgspec.structs.replace(
        answers[0],
        cases=tuple(case for case in answers[0].cases if case in cases),
        launches=max(answer.launches for answer in answers),
        compiled=max(answer.compiled for answer in answers),
    )

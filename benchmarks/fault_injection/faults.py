"""A fault: what happens at which step of which process. The steps are counted in memory that all processes of a command share."""

from __future__ import annotations

import errno
import mmap
import os
import random
import signal
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DISK", "EVENTS", "SUPERVISOR", "WORKER", "Fault", "Steps", "fits"]

SUPERVISOR, WORKER = "supervisor", "worker"
DISK = {
    "full": "from this step on whatever needs room fails with ENOSPC",
    "torn-full": "half of a write is taken; from then on the same",
    "error": "this step fails with EIO, the next ones do not",
    "short": "half of a write is taken, once",
    "late": "this step takes a fifth of a second",
    "kill-before": "kill -9 in front of this step",
    "kill-torn": "kill -9 after half of a write",
    "kill-after": "kill -9 behind this step",
    "power-lost": "loss of power behind this step: what was not synced is gone",
    "power-kept": "the same: names are kept, data that were not synced are torn or empty",
    "power-mixed": "the same: by chance",
}
"""Faults of a step of the disk."""
EVENTS = ("kill-before", "kill-after")
"""Faults of an event that a worker sends."""
_NEEDS_ROOM = {"write", "write_at", "create", "make_folder", "open_file", "sync", "move"}
_WRITES = {"write", "write_at"}
_DELAY = 0.2


@dataclass(frozen=True)
class Fault:
    """One fault.

    Args:
        role: the process, `supervisor` or `worker`.
        kind: key of `DISK`.
        at: number of the step, from 0 on.
        seed: for what is left to chance.
    """

    role: str
    kind: str
    at: int
    seed: int = 0


class Steps:
    """Counts the steps of a command and does its fault.

    Args:
        fault: None only counts.
        log: descriptor of a file that takes a line about what happened.

    Attributes:
        role: of this process.
        lose_power: leaves of the disk what a loss of power leaves.
        die: ends this process.
        dead: whether it is past its end.
        names: of the steps of this process, in their order.
    """

    def __init__(self, fault: Fault | None, log: int) -> None:
        self._fault, self._log, self.role = fault, log, SUPERVISOR
        self._shared = mmap.mmap(-1, 64)
        self.lose_power: Callable[[str, random.Random], None] = lambda _how, _pick: None
        self.die: Callable[[], None] = _die
        self.dead = False
        self.names: list[str] = []

    @property
    def descriptors(self) -> set[int]:
        """What has to stay open."""
        return {self._log}

    def tell(self, text: str) -> None:
        """A line of the log."""
        os.write(self._log, text.encode() + b"\n")

    def count(self, role: str) -> int:
        """Steps of a role so far."""
        return int(struct.unpack_from("Q", self._shared, 8 * (role == WORKER))[0])

    @property
    def fired(self) -> bool:
        """Whether the fault happened."""
        return bool(self._shared[16])

    def _next(self) -> int:
        place, number = 8 * (self.role == WORKER), self.count(self.role)
        struct.pack_into("Q", self._shared, place, number + 1)
        return number

    def step(self, name: str, what: str, call: Callable[..., Any], *given: Any) -> Any:
        """One step, with its fault where it has one; `what` names the file. A dead process takes none."""
        if self.dead:
            self.die()
        number, fault = self._next(), self._fault
        self.names.append(name)
        if fault is None or fault.role != self.role:
            return call(*given)
        if fault.kind in ("full", "torn-full") and self.fired and name in _NEEDS_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if number != fault.at or not fits(fault.kind, name):
            return call(*given)
        self._shared[16] = 1
        self.tell(f"fault {fault.kind} {self.role} {number} {name} {what}")
        return self._fail(fault, call, given)

    def _fail(self, fault: Fault, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        kind = fault.kind
        if kind == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if kind == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if kind == "kill-before":
            self._end()
        if kind == "late":
            time.sleep(_DELAY)
        if kind in ("torn-full", "short", "kill-torn"):
            descriptor, data, *place = given
            done = call(descriptor, data[: max(1, len(data) // 2)], *place)
        else:
            done = call(*given)
        if kind.startswith("power-"):
            self.lose_power(kind.removeprefix("power-"), random.Random(fault.seed))
        if kind.startswith(("power-", "kill-")):
            self._end()
        return done

    def _end(self) -> None:
        self.dead = True
        self.die()


def fits(kind: str, name: str) -> bool:
    """Whether a kind of fault can happen at a step."""
    if kind in ("torn-full", "short", "kill-torn"):
        return name in _WRITES
    if name == "event":
        return kind in EVENTS
    return name in _NEEDS_ROOM if kind == "full" else True


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

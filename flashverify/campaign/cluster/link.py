"""The supervisor's side of one group: a thread that listens, and what the workers of the group are to it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from flashverify.campaign.cluster.messages import decode_reports
from flashverify.campaign.cluster.remote_worker import RemoteWorker
from flashverify.campaign.supervisor.hosts import Outage
from flashverify.errors import FlashverifyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.cluster.planning import Place

__all__ = ["Actor", "ActorLostError", "Link"]

_POLL, _SILENT = 1.0, 90.0
"""Seconds that a group waits for news, and after which one that says nothing is lost."""


class ActorLostError(FlashverifyError):
    """A group, or the machine that it was on, is no more; the message is the reason."""


class Actor(Protocol):
    """A `WorkerGroup` somewhere."""

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method, in the order of the calls; nothing comes back, and a group that is gone is noticed by `ask`."""

    def ask(self, method: str, *arguments: Any, seconds: float) -> bytes:
        """The answer of a method.

        Raises:
            ActorLostError: the group is gone, or silent for so long.
        """

    def kill(self) -> None:
        """End it and its workers."""


class Link:
    """One life of the group of a place.

    Args:
        place: whose.
        actor: the group.
        number: of the life.
        alive: whether a group can be started there again.
    """

    def __init__(self, place: Place, actor: Actor, number: int, alive: Callable[[], bool]) -> None:
        self.place, self._actor, self._number, self._alive = place, actor, number, alive
        self._workers: dict[int, RemoteWorker] = {}
        self._lock, self._next, self._closed = threading.Lock(), 0, False
        self.outage: Outage | None = None
        self._thread = threading.Thread(target=self._listen, name=f"flashverify-{place.name}", daemon=True)
        self._thread.start()

    def start(self, setup: bytes) -> RemoteWorker:
        """A worker in a new process."""
        actor = self._actor
        with self._lock:
            key, self._next = self._next, self._next + 1
            worker = RemoteWorker(lambda line: actor.tell("send", key, line), lambda: actor.tell("end", key))
            self._workers[key] = worker
        if self.outage is not None:
            worker.lose(self.outage)
        else:
            actor.tell("start", key, setup)
        return worker

    def _listen(self) -> None:
        while not self._closed:
            try:
                reports = decode_reports(self._actor.ask("poll", _POLL, seconds=_SILENT))
            except Exception as error:  # whatever it is, nothing more will be heard
                self._lose(str(error) or type(error).__name__)
                return
            for report in reports:
                with self._lock:
                    worker = self._workers.pop(report.key, None) if report.over else self._workers.get(report.key)
                if worker is not None:
                    worker.take(report)

    def _lose(self, reason: str) -> None:
        if self._closed:
            return
        try:
            final = not self._alive()
        except Exception:  # there is nobody left to ask
            final = True
        self._actor.kill()  # one that is silent may still judge
        with self._lock:
            self.outage = Outage(self.place.name, self._number, reason, final)
            workers = tuple(self._workers.values())
        for worker in workers:
            worker.lose(self.outage)

    def close(self) -> None:
        """End the group, and the listening."""
        self._closed = True
        self._actor.kill()
        self._thread.join(_POLL + 5.0)

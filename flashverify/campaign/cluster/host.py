"""Starts the workers of a campaign at the places of a cluster."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import msgspec

from flashverify.campaign.cluster.everywhere import EverywhereHost
from flashverify.campaign.cluster.link import Actor, ActorLostError, Link
from flashverify.campaign.cluster.messages import Hello
from flashverify.campaign.cluster.planning import assignment, device_of, memory_of_worker, places_of, with_workers
from flashverify.campaign.environment import capability, versions
from flashverify.errors import NoVerdictError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flashverify.campaign.cluster.planning import Node, Place
    from flashverify.campaign.cluster.remote_worker import RemoteWorker
    from flashverify.campaign.supervisor.process import ProcessSetup

__all__ = ["Cluster", "ClusterHost"]

_HELLO = 120.0
"""Seconds that the first answer of a group may take: Ray ships what it ships, and the group imports what it needs."""


class Cluster(Protocol):
    """What can be asked of Ray."""

    def nodes(self) -> tuple[Node, ...]:
        """The machines that are alive."""

    def group(self, place: Place, subjects: tuple[str, ...]) -> Actor:
        """A new group; whether there is room for it is seen by its first answer."""

    def close(self) -> None:
        """Let go of the cluster."""


class ClusterHost:
    """The places of a cluster, each with a group that is started again where it ends.

    Args:
        cluster: to ask.
        subjects: specs.
        device: `auto`, `cpu` or `cuda`.
        workers: in all; None is as many as the cluster has room for.

    Attributes:
        device: resolved.
        assigned: the name of the place of each worker.
        problems: places that are not used, in words.

    Raises:
        UsageError: there is no GPU, or a machine has other versions.
        NoVerdictError: no group answers.
    """

    def __init__(self, cluster: Cluster, subjects: tuple[str, ...], device: str, workers: int | None) -> None:
        self._cluster, self._subjects = cluster, subjects
        nodes = cluster.nodes()
        self.device = device_of(device, nodes)
        room = places_of(nodes, self.device)
        room = with_workers(room, assignment(room, workers))
        actors = {place.name: cluster.group(place, subjects) for place in room}
        try:
            hellos, self.problems = _hellos(room, actors)
        except BaseException:
            for actor in actors.values():
                actor.kill()
            cluster.close()
            raise
        self._places = {place.name: place for place in room if place.name in hellos}
        self.assigned = assignment(tuple(self._places.values()), workers)
        self._hellos = hellos
        self._lives = dict.fromkeys(self._places, 1)
        self._links = {name: self._link(name, actors[name]) for name in self._places}

    def _link(self, name: str, actor: Actor) -> Link:
        place = self._places[name]
        return Link(place, actor, self._lives[name], lambda: self._alive(place))

    def _alive(self, place: Place) -> bool:
        return any(node.id == place.node.id for node in self._cluster.nodes())

    @property
    def _used(self) -> tuple[Place, ...]:
        return with_workers(tuple(self._places.values()), self.assigned)

    @property
    def most(self) -> int:
        """Workers of the machine that has most of them."""
        counts = Counter[str]()
        for place in self._used:
            counts[place.node.id] += place.workers
        return max(counts.values(), default=0)

    def memory(self, compilers: int) -> int | None:
        """Bytes that one worker may use; None is no limit.

        Args:
            compilers: processes on each machine that compile ahead.
        """
        memory = {name: hello.memory for name, hello in self._hellos.items()}
        return memory_of_worker(self._used, memory, compilers)

    def compiling(self) -> EverywhereHost:
        """What starts processes that compile ahead, on each machine."""
        return EverywhereHost(self._start_everywhere)

    def _start_everywhere(self, setup: ProcessSetup) -> list[RemoteWorker]:
        """One process on each machine that is not gone, in the group of its first place."""
        first: dict[str, str] = {}
        for name, place in self._places.items():
            outage = self._links[name].outage
            if outage is None or not outage.final:
                first.setdefault(place.node.id, name)
        found = []
        for name in first.values():
            ahead = capability(self._hellos[name].arch) or setup.ahead
            found.append(self._at(name, msgspec.structs.replace(setup, ahead=ahead)))
        return found

    def start(self, setup: ProcessSetup, number: int, note: Path) -> RemoteWorker:  # noqa: ARG002 - it is on this disk
        """Worker `number` at its place, whose group is started again where it is gone."""
        return self._at(self.assigned[number % len(self.assigned)], setup)

    def _at(self, name: str, setup: ProcessSetup) -> RemoteWorker:
        outage = self._links[name].outage
        if outage is not None and not outage.final:
            self._lives[name] += 1
            self._links[name] = self._link(name, self._cluster.group(self._places[name], self._subjects))
        return self._links[name].start(msgspec.json.encode(setup))

    def close(self) -> None:
        """End every group, once."""
        links, self._links = self._links, {}
        for link in links.values():
            link.close()
        if links:
            self._cluster.close()


def _hellos(places: Sequence[Place], actors: dict[str, Actor]) -> tuple[dict[str, Hello], tuple[str, ...]]:
    """What the groups say of their machines; and those that say nothing, in words."""
    mine, found, problems = versions(), dict[str, Hello](), list[str]()
    end = time.monotonic() + _HELLO
    for place in places:
        try:
            hello = msgspec.msgpack.decode(
                actors[place.name].ask("hello", seconds=max(5.0, end - time.monotonic())), type=Hello
            )
        except ActorLostError as error:
            actors[place.name].kill()
            problems.append(f"{place.name} is not used, its CPUs or GPUs may be taken: {error}")
            continue
        other = [f"{k} {hello.versions.get(k)} in place of {mine[k]}" for k in mine if hello.versions.get(k) != mine[k]]
        if other:
            raise UsageError(f"--engine='ray' is not accepted: {place.name} has {', '.join(other)}")
        found[place.name] = hello
    if not found:
        reasons = "; ".join(problems) or "it has no CPU and no GPU that is alive"
        raise NoVerdictError(f"the cluster has no place for a worker: {reasons}")
    return found, tuple(problems)

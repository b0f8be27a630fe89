"""A cluster without Ray: its groups are objects of this process, and can be lost with their workers."""

import threading

from flashverify.campaign.cluster.group import WorkerGroup
from flashverify.campaign.cluster.link import ActorLostError
from flashverify.campaign.cluster.planning import Node


class FakeActor:
    """A group whose methods are called as Ray calls them."""

    def __init__(self, subjects):
        self._group, self._lost, self._lock = WorkerGroup(subjects), "", threading.Lock()
        self.longest = 0

    def tell(self, method, *arguments):
        if not self._lost:
            getattr(self._group, method)(*arguments)

    def ask(self, method, *arguments, seconds):
        with self._lock:
            if self._lost:
                raise ActorLostError(self._lost)
            answer = getattr(self._group, method)(*arguments)
        if self._lost:
            raise ActorLostError(self._lost)
        self.longest = max(self.longest, len(answer))
        return answer

    def lose(self, reason):
        """Its process is killed."""
        if not self._lost:
            self._lost = reason
            self._group.end(-1)  # a poll that waits comes back
            with self._lock:
                self._group.close()

    def kill(self):
        self.lose("ended")


class FakeCluster:
    """Machines with so many CPUs, and GPUs each; `full` of them have no room for a group."""

    def __init__(self, *cpus, gpus=0, full=(), actor=lambda subjects, place: FakeActor(subjects)):
        self.alive = [Node(f"id{n}", f"node{n}", count, gpus) for n, count in enumerate(cpus)]
        self.groups = {node.id: [] for node in self.alive}
        self._full, self._actor, self.closed = full, actor, False

    def nodes(self):
        return tuple(self.alive)

    def group(self, place, subjects):
        actor = self._actor(subjects, place)
        self.groups[place.node.id].append(actor)
        if place.node.id in self._full:
            actor.lose("no CPU is free")
        return actor

    def lose_node(self, identity):
        self.alive = [node for node in self.alive if node.id != identity]
        self.groups[identity][-1].lose("its machine is gone")

    def close(self):
        self.closed = True

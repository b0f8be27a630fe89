"""Which groups of a cluster are used, started again and ended."""

from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.cluster import host as module
from flashverify.campaign.cluster.host import ClusterHost
from flashverify.campaign.cluster.link import ActorLostError
from flashverify.campaign.cluster.messages import Hello
from flashverify.campaign.cluster.planning import Node
from flashverify.campaign.environment import versions
from flashverify.campaign.supervisor.hosts import Outage
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.errors import NoVerdictError, UsageError

SETUP = ProcessSetup("t", "cuda", 1.0, ahead="1.0")
NOTE = Path("note")


class Actor:
    """A group that says hello and nothing else."""

    def __init__(self, hello):
        self.hello, self.asked, self.told, self.killed = hello, [], [], 0

    def ask(self, method, *arguments, seconds):
        self.asked.append((method, seconds))
        if isinstance(self.hello, BaseException):
            raise self.hello
        return msgspec.msgpack.encode(self.hello)

    def tell(self, *told):
        self.told.append(told)

    def kill(self):
        self.killed += 1


class Cluster:
    """Machines, and what the groups say that are started there, one after the other."""

    def __init__(self, nodes, *hellos):
        self.machines, self._hellos, self.actors, self.places, self.closed = tuple(nodes), list(hellos), [], [], 0

    def nodes(self):
        return self.machines

    def group(self, place, subjects):
        self.places.append((place.name, place.workers, subjects))
        self.actors.append(Actor(self._hellos.pop(0) if self._hellos else Hello(versions(), 1000)))
        return self.actors[-1]

    def close(self):
        self.closed += 1


class Link:
    """A link that hears nothing."""

    def __init__(self, place, actor, number, alive):
        self.place, self.actor, self.number, self.alive, self.outage, self.closed = place, actor, number, alive, None, 0

    def start(self, setup):
        return self.place.name, self.number, msgspec.json.decode(setup, type=ProcessSetup).ahead

    def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def links(monkeypatch):
    monkeypatch.setattr(module, "Link", Link)


def hello(memory=1000, arch="", **other):
    return Hello(versions() | other, memory, arch)


GPUS = (Node("a", "a", 4, 2), Node("b", "b", 2, 1))


def test_a_group_is_started_where_a_worker_runs_and_nowhere_else():
    cluster = Cluster((Node("a", "a", 3, 0), Node("b", "b", 1, 0), Node("c", "c", 1, 0)))
    host = ClusterHost(cluster, ("s",), "auto", 2)

    assert cluster.places == [("a/cpu", 1, ("s",)), ("b/cpu", 1, ("s",))]
    assert (host.device, host.assigned, host.problems, host.most) == ("cpu", ("a/cpu", "b/cpu"), (), 1)


def test_the_workers_of_a_place_that_says_nothing_run_at_the_others():
    cluster = Cluster(GPUS, hello(800), ActorLostError("taken"), hello(900))
    host = ClusterHost(cluster, ("s",), "cuda", 4)

    assert host.problems == ("a/gpu1 is not used, its CPUs or GPUs may be taken: taken",)
    assert [actor.killed for actor in cluster.actors] == [0, 1, 0]
    assert host.assigned == ("a/gpu0", "b/gpu0", "a/gpu0", "a/gpu0")
    assert host.most == 3
    assert host.memory(0) == 213, "0.8 of 800 for three"
    assert host.memory(2) == 160, "and two that compile"


def test_most_is_of_a_machine_not_of_a_place():
    assert ClusterHost(Cluster(GPUS), ("s",), "cuda", None).most == 4


@pytest.mark.parametrize(
    ("hellos", "error", "match"),
    [
        ((hello(torch="2.0", numpy="0"),), UsageError, r"a/cpu has .*torch 2\.0 in place of"),
        ((ActorLostError("taken"), ActorLostError("gone")), NoVerdictError, "a/cpu is not used.*taken; b/cpu.*gone$"),
        ((KeyboardInterrupt(),), KeyboardInterrupt, None),
    ],
)
def test_a_cluster_that_is_not_used_is_let_go_with_all_of_its_groups(hellos, error, match):
    cluster = Cluster((Node("a", "a", 1, 0), Node("b", "b", 1, 0)), *hellos)
    with pytest.raises(error, match=match):
        ClusterHost(cluster, ("s",), "cpu", None)

    assert all(actor.killed for actor in cluster.actors)
    assert (len(cluster.actors), cluster.closed) == (2, 1)


def test_a_cluster_without_a_place_is_no_verdict():
    with pytest.raises(NoVerdictError, match="no place for a worker: it has no CPU and no GPU that is alive"):
        ClusterHost(Cluster(()), ("s",), "cpu", None)


def test_groups_share_the_time_for_their_first_answer_and_each_has_some_seconds(monkeypatch):
    clock = iter([100.0, 100.0, 170.0, 400.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    cluster = Cluster(tuple(Node(name, name, 1, 0) for name in "abc"))
    ClusterHost(cluster, ("s",), "cpu", None)

    assert [actor.asked for actor in cluster.actors] == [[("hello", seconds)] for seconds in (120.0, 50.0, 5.0)]


def test_a_worker_begins_at_its_place_and_its_group_again_where_it_is_gone():
    cluster = Cluster(GPUS)
    host = ClusterHost(cluster, ("s",), "cuda", None)
    assert [host.start(SETUP, n, NOTE)[0] for n in range(7)] == [host.assigned[n % 6] for n in range(7)]
    first, groups = host._links["b/gpu0"], len(cluster.actors)
    assert (first.number, first.alive()) == (1, True)

    first.outage = Outage("b/gpu0", 1, "killed", final=False)
    number = host.assigned.index("b/gpu0")
    assert host.start(SETUP, number, NOTE) == ("b/gpu0", 2, "1.0")
    assert host.start(SETUP, number, NOTE) == ("b/gpu0", 2, "1.0")
    assert len(cluster.actors) == groups + 1
    assert host._links["b/gpu0"].actor is cluster.actors[-1]

    cluster.machines = GPUS[:1]
    host._links["b/gpu0"].outage = Outage("b/gpu0", 2, "gone", final=True)
    assert not host._links["b/gpu0"].alive()
    assert host.start(SETUP, number, NOTE)[1] == 2, "nothing can be started there"
    assert len(cluster.actors) == groups + 1


def test_a_process_on_every_machine_compiles_for_the_gpu_of_that_machine():
    host = ClusterHost(Cluster(GPUS, hello(arch="sm_90"), hello(arch="sm_80"), hello()), ("s",), "cuda", None)
    assert host._start_everywhere(SETUP) == [("a/gpu0", 1, "9.0"), ("b/gpu0", 1, "1.0")]

    host._links["a/gpu0"].outage = Outage("a/gpu0", 1, "gone", final=True)
    host._links["b/gpu0"].outage = Outage("b/gpu0", 1, "killed", final=False)
    assert host._start_everywhere(SETUP) == [("a/gpu1", 1, "8.0"), ("b/gpu0", 2, "1.0")]
    assert host.compiling()._start == host._start_everywhere


def test_a_host_is_closed_once():
    cluster = Cluster(GPUS)
    host = ClusterHost(cluster, ("s",), "cuda", None)
    links = list(host._links.values())
    host.close()
    host.close()

    assert ([link.closed for link in links], cluster.closed) == ([1, 1, 1], 1)

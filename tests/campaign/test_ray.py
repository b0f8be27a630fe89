"""The same with Ray itself, on one machine that pretends to be two: a killed actor, a killed machine. Skipped without Ray."""

import os
import sys

import pytest

from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import GpuSetAside, Progress, WorkerLost
from tests.campaign.test_cluster import verdicts
from tests.campaign.test_engine import campaign, config

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings


@pytest.fixture
def cluster(monkeypatch):
    """A head without CPUs and two machines of one CPU."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # what is installed on the machines
    small = {"object_store_memory": 80 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False} | small)
    found.machines = [found.add_node(num_cpus=1, **small) for _ in range(2)]
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    yield found
    ray.shutdown()
    found.shutdown()


def stored_objects():
    """Bytes that are in the object stores of the cluster."""
    free, all_of = ray.available_resources(), ray.cluster_resources()
    return all_of["object_store_memory"] - free["object_store_memory"]


def test_a_killed_actor_and_a_killed_machine_lose_no_case(cluster, tmp_path, monkeypatch, capfd):
    from flashverify.campaign.cluster.connecting import connect

    monkeypatch.chdir(tmp_path)
    host = connect(("slow-tail",), "auto", None, tmp_path / "run")
    first, second = host.assigned
    nodes = {place.name: place.node.id for place in host._places.values()}
    events, struck, objects = [], [], []

    def strike(event):
        events.append(event)
        if isinstance(event, Progress) and event.cases >= 30 and not struck:
            objects.append(stored_objects())
            struck.append(ray.kill(host._links[first]._actor._actor))
        if isinstance(event, Progress) and event.cases >= 150 and len(struck) == 1:
            struck.append(second)
            machine = next(each for each in cluster.machines if each.node_id == nodes[second])
            cluster.remove_node(machine, allow_graceful=False)

    given = {"max_cases": 400, "batch": 25, "seed": 4, "case_limit": 60.0}
    where = {"workers": 2, "gpus": host.assigned, "host": host, "device": host.device, "memory": host.memory(0)}
    summary = Engine(config(tmp_path / "run", "slow-tail", **given, **where), (strike,)).run()
    assert capfd.readouterr().out == "", "Ray says nothing where the verdict is read"
    plain, _ = campaign(tmp_path / "plain", "slow-tail", **given)

    assert len(struck) == 2
    assert verdicts(tmp_path / "run") == verdicts(tmp_path / "plain")
    assert set(verdicts(tmp_path / "run").values()) == {1}
    assert (summary.exit_code, summary.findings, summary.cases) == (plain.exit_code, plain.findings, 400)
    keys = [[f.record.key for f in open_run(tmp_path / name).findings] for name in ("run", "plain")]
    assert keys[0] == keys[1]
    assert [e.gpu for e in events if isinstance(e, GpuSetAside)] == [second]
    assert all("lost all of its workers" in e.reason for e in events if isinstance(e, WorkerLost))
    assert objects == [0]

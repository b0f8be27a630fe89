"""Each machine of a cluster keeps its own compiled kernels: what is compiled ahead is compiled on all before any worker draws it."""

import msgspec
import pytest

from flashverify.campaign.cluster.everywhere import EverywhereWorker
from flashverify.campaign.cluster.host import ClusterHost
from flashverify.campaign.cluster.messages import Report
from flashverify.campaign.cluster.remote_worker import RemoteWorker
from flashverify.campaign.protocol import Prepared, Started, encode
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor import gpu
from flashverify.campaign.supervisor.events import Progress
from flashverify.campaign.supervisor.hosts import Outage
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.case.text import parse_case
from tests.campaign.fake_cluster import FakeActor, FakeCluster
from tests.campaign.test_cluster import in_fake_cluster


class Machine(FakeActor):
    """A group on a machine with a folder of kernels of its own."""

    def __init__(self, subjects, kernels):
        super().__init__(subjects)
        kernels.mkdir(exist_ok=True)
        self._own = {"PRETENDED_KERNELS": str(kernels)}

    def tell(self, method, key, *arguments):
        if method == "start":
            setup = msgspec.json.decode(arguments[0], type=ProcessSetup)
            setup = msgspec.structs.replace(setup, environment=setup.environment | self._own)
            arguments = (msgspec.json.encode(setup),)
        super().tell(method, key, *arguments)


@pytest.mark.slow
@pytest.mark.thorough
def test_every_machine_compiles_what_workers_draw_from_and_an_outage_leaves_nothing_out(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "architecture", lambda: "")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cluster = FakeCluster(1, 1, gpus=1, actor=lambda subjects, place: Machine(subjects, tmp_path / place.node.id))
    struck = []

    def strike(event):
        if isinstance(event, Progress) and event.cases >= 20 and not struck:
            struck.append(cluster.groups["id0"][0].lose("killed"))

    given = {"compilers": 1, "batch": 40, "max_cases": 80, "toolkit": "compiling_toolkit:toolkit", "device": "cuda"}
    summary, _ = in_fake_cluster(tmp_path / "run", "clean", cluster, strike, **given)

    assert (summary.exit_code, summary.cases, len(struck)) == (0, 80, 1)
    cases = [parse_case(result.case) for result in open_run(tmp_path / "run").results()]
    for machine in ("id0", "id1"):
        compiled = [line.split() for line in (tmp_path / machine / "log").read_text().splitlines()]
        assert {who for who, _ in compiled} == {"ahead"}
        assert {f"dim-{case.dim_v}" for case in cases} <= {key for _, key in compiled}


def parts():
    return [RemoteWorker(lambda line: None, lambda: None) for _ in range(2)]


def test_a_task_is_prepared_when_the_last_machine_is_done():
    first, second = found = parts()
    worker = EverywhereWorker(found)
    first.take(Report(0, encode(Started()) + encode(Prepared("k", ("a", "b"), 3, compiled=2))))
    assert worker.read() == [Started()]

    second.take(Report(0, encode(Prepared("k", ("b",), 3, compiled=5, launches=7))))
    assert worker.read() == [Prepared("k", ("b",), 3, compiled=5, launches=7)]
    assert (worker.code(), worker.outage) == (None, None)


@pytest.mark.parametrize("ended", ["died", "lost"])
def test_it_is_dead_with_one_of_them(ended):
    first, second = found = parts()
    worker = EverywhereWorker(found)
    outage = Outage("b/gpu0", 1, "killed", final=False)
    second.take(Report(0, over=True, code=9)) if ended == "died" else second.lose(outage)

    assert worker.code() == (9 if ended == "died" else -9)
    assert worker.outage == (None if ended == "died" else outage)
    first.take(Report(0, over=True))
    worker.close()


@pytest.mark.slow
def test_a_machine_that_is_gone_compiles_no_more():
    cluster = FakeCluster(1, 1, gpus=2)
    host = ClusterHost(cluster, ("clean",), "auto", None)
    assert (host.device, host.most, len(host.assigned)) == ("cuda", 2, 4)
    for actor in cluster.groups["id0"]:
        cluster.alive = cluster.alive[1:] if len(cluster.alive) > 1 else cluster.alive
        actor.lose("its machine is gone")
    for name in ("node0/gpu0", "node0/gpu1"):
        host._links[name]._thread.join(10)
    started = []
    host._at = lambda name, setup: started.append(name)
    host._start_everywhere(ProcessSetup("t", "cuda", 1.0))
    host.close()

    assert started == ["node1/gpu0"]

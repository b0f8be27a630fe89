"""A campaign whose workers are groups at the places of a cluster: nothing is lost with a group or with a machine. No Ray is needed."""

import socket
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.cluster import connecting
from flashverify.campaign.cluster.address import require_reachable
from flashverify.campaign.cluster.group import WorkerGroup
from flashverify.campaign.cluster.host import ClusterHost
from flashverify.campaign.cluster.messages import Hello, Report, decode_reports
from flashverify.campaign.cluster.planning import Node, assignment, device_of, memory_of_worker, places_of
from flashverify.campaign.cluster.remote_worker import RemoteWorker
from flashverify.campaign.commands.settings import Settings
from flashverify.campaign.commands.where import in_cluster
from flashverify.campaign.protocol import Started, encode
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import FindingMinimal, GpuSetAside, Progress, WorkerLost
from flashverify.cli import main
from flashverify.errors import NoVerdictError, UsageError
from tests.campaign.fake_cluster import FakeActor, FakeCluster
from tests.campaign.test_engine import campaign, config

HOSTS = [Node("a", "10.0.0.1", 64, 2), Node("b", "10.0.0.2", 4, 0), Node("c", "10.0.0.2", 2, 1)]


def in_fake_cluster(out, subject, cluster, listener=lambda event: None, **changes):
    """A campaign in a cluster, and what it told."""
    host = ClusterHost(cluster, (subject,), "cpu", changes.get("workers"))
    given = {"workers": len(host.assigned), "gpus": host.assigned, "host": host}
    events = []
    engine = Engine(config(out, subject, **(changes | given)), (events.append, listener))
    return engine.run(), events


def verdicts(out):
    """What each case of each batch was found to be, and how often."""
    return Counter((r.origin, r.case, r.verdicts) for r in open_run(out).results())


@pytest.mark.slow
def test_nothing_is_lost_with_a_group_or_a_machine(tmp_path):
    cluster, struck = FakeCluster(1, 1), []

    def strike(event):
        if isinstance(event, Progress) and event.cases >= 15 and not struck:
            struck.append(cluster.groups["id0"][0].lose("killed"))
        if isinstance(event, Progress) and event.cases >= 60 and len(struck) == 1:
            struck.append(cluster.lose_node("id1"))

    given = {"max_cases": 110, "batch": 25, "seed": 4, "repeats": 1}
    summary, events = in_fake_cluster(tmp_path / "cluster", "slow-tail", cluster, strike, **given)
    plain, _ = campaign(tmp_path / "plain", "slow-tail", **given)

    assert len(struck) == 2
    assert verdicts(tmp_path / "cluster") == verdicts(tmp_path / "plain")
    assert set(verdicts(tmp_path / "cluster").values()) == {1}
    assert (summary.exit_code, summary.findings, summary.cases) == (plain.exit_code, plain.findings, 110)
    assert summary.restarts == 2, "a group counts once, however many workers it had"
    assert [e.reason for e in events if isinstance(e, WorkerLost)] == [
        "node0/cpu lost all of its workers: killed; what they had goes on",
        "node1/cpu lost all of its workers: its machine is gone; what they had goes on",
    ]
    assert [(e.gpu, e.reason) for e in events if isinstance(e, GpuSetAside)] == [("node1/cpu", "its machine is gone")]
    assert {e.record.not_minimal for e in events if isinstance(e, FindingMinimal)} == {""}
    assert len(cluster.groups["id0"]) == 2
    assert cluster.closed
    assert max(actor.longest for actors in cluster.groups.values() for actor in actors) < 100 * 1024


@pytest.mark.slow
@pytest.mark.thorough
def test_a_case_that_kills_its_worker_is_a_finding_in_a_cluster_too(tmp_path):
    cluster = FakeCluster(1)
    given = {"kind": "run", "cases": ("fv1 seq_q=50",), "max_cases": None, "shrink": False, "repeats": 1}
    summary, _ = in_fake_cluster(tmp_path / "run", "segfault", cluster, **given)

    assert summary.exit_code == 1
    crash = [f.record.verdict for f in open_run(tmp_path / "run").findings]
    assert [(v.check, v.error) for v in crash] == [("crash", "SIGSEGV")]
    assert "fake_toolkit.py" in crash[0].message, "what the worker printed comes with it"


def test_without_any_machine_left_there_is_no_verdict(tmp_path):
    cluster = FakeCluster(1)

    def strike(event):
        if isinstance(event, Progress) and cluster.alive:
            cluster.lose_node("id0")

    with pytest.raises(NoVerdictError, match=r"no place of the cluster is left: node0/cpu: its machine is gone"):
        in_fake_cluster(tmp_path / "run", "slow", cluster, strike)


def test_places_are_gpus_or_the_cpus_of_a_machine():
    assert [(p.name, p.workers) for p in places_of(HOSTS, "cuda")] == [
        ("10.0.0.1/gpu0", 14),
        ("10.0.0.1/gpu1", 14),
        ("10.0.0.2#2/gpu0", 2),
    ]
    assert [(p.name, p.workers) for p in places_of(HOSTS[:2], "cpu")] == [("10.0.0.1/cpu", 64), ("10.0.0.2/cpu", 4)]
    assert [device_of(asked, HOSTS) for asked in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    assert device_of("auto", HOSTS[1:2]) == "cpu"
    with pytest.raises(UsageError, match="--device='cuda' is not accepted: the cluster has no GPU"):
        device_of("cuda", HOSTS[1:2])


def test_workers_fill_the_places_in_turn():
    places = places_of(HOSTS[1:], "cpu")

    assert assignment(places) == ("10.0.0.2/cpu", "10.0.0.2#2/cpu") * 2 + ("10.0.0.2/cpu",) * 2
    assert assignment(places, 1) == ("10.0.0.2/cpu",)
    assert assignment(places, 8) == (*assignment(places), "10.0.0.2/cpu", "10.0.0.2#2/cpu")
    assert assignment((), None) == ()


def test_the_memory_of_a_worker_is_that_of_the_fullest_machine():
    two = places_of(HOSTS[:1], "cuda")
    assert memory_of_worker(two, {"10.0.0.1/gpu0": 280, "10.0.0.1/gpu1": 280}) == 8
    assert memory_of_worker(two, {"10.0.0.1/gpu0": 280, "10.0.0.1/gpu1": 280}, compilers=14) == 6
    assert memory_of_worker(two, {}) is None


class Chatty:
    """A worker that said much."""

    descriptors = ()

    def __init__(self, data):
        self._data = data

    def code(self):
        return None

    def memory(self):
        return 1

    def received(self):
        data, self._data = self._data, b""
        return data

    def close(self):
        pass


def test_an_answer_is_too_small_for_an_object_store_and_nothing_is_cut_off():
    group, said = WorkerGroup(("k",)), bytes(range(256)) * 1200
    group._processes, group._unsent = {0: Chatty(said), 1: Chatty(said)}, {0: b"", 1: b""}
    heard = Counter()
    parts = {0: b"", 1: b""}
    for _ in range(12):
        answer = group.poll(0.0)
        heard[len(answer) < 100 * 1024] += 1
        for report in decode_reports(answer):
            parts[report.key] += report.events
    group.close()

    assert heard == {True: 12}
    assert parts == {0: said, 1: said}


def test_a_worker_far_away_says_what_came_in_pieces_and_is_told_nothing_once_it_is_gone():
    sent, line = [], encode(Started())
    worker = RemoteWorker(sent.append, lambda: sent.append(b"end"))
    worker.take(Report(0, line[:5]))
    worker.take(Report(0, line[5:] + line, memory=7))
    assert worker.read() == [Started(), Started()]
    assert (worker.code(), worker.memory()) == (None, 7)

    worker.send_line(b"task")
    worker.take(Report(0, over=True, code=3, printed="why"))
    worker.send_line(b"more")
    worker.close()
    assert (worker.code(), worker.printed(), worker.outage) == (3, "why", None)
    assert sent == [b"task"]


def test_a_place_without_room_is_left_out_and_said():
    cluster = FakeCluster(1, 1, full=("id1",))
    host = ClusterHost(cluster, ("clean",), "cpu", None)
    host.close()

    assert host.assigned == ("node0/cpu",)
    assert host.problems == ("node1/cpu is not used, its CPUs or GPUs may be taken: no CPU is free",)
    with pytest.raises(NoVerdictError, match="the cluster has no place for a worker: node0/cpu is not used"):
        ClusterHost(FakeCluster(1, full=("id0",)), ("clean",), "cpu", None)


def test_a_machine_with_another_torch_is_refused():
    class Older(FakeActor):
        def ask(self, method, *arguments, seconds):
            answer = super().ask(method, *arguments, seconds=seconds)
            hello = msgspec.msgpack.decode(answer, type=Hello)
            return msgspec.msgpack.encode(Hello(hello.versions | {"torch": "2.0"}, 1))

    with pytest.raises(UsageError, match=r"node0/cpu has torch 2\.0 in place of"):
        ClusterHost(FakeCluster(1, actor=lambda subjects, place: Older(subjects)), ("clean",), "cpu", None)


def test_without_ray_one_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(connecting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["fuzz", "--engine", "ray", "--subject", "bundled", "--max-cases", "1"])

    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "flashverify: error: --engine='ray' is not accepted: Ray is not installed; pip install 'flashverify[ray]'\n"
    )


def test_gpus_of_this_machine_do_not_go_with_a_cluster():
    with pytest.raises(UsageError, match="--gpus='0' is not accepted with --engine ray"):
        in_cluster("fuzz", Settings(gpus="0"), ("bundled",), Path("out"))


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "10.0.0.1", "10.0.0.1:٣"])
def test_an_address_that_is_none_of_a_cluster_is_refused(address):
    with pytest.raises(UsageError, match=r"RAY_ADDRESS=.* is not accepted: HOST:PORT"):
        require_reachable(address)


def test_a_cluster_that_does_not_answer_is_said_at_once():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(NoVerdictError, match=r"no way to the Ray cluster: RAY_ADDRESS='127\.0\.0\.1:"):
            require_reachable(f"127.0.0.1:{mute.getsockname()[1]}")
        for none in (None, "", "auto", "local"):
            require_reachable(none)


def test_the_folder_of_a_subject_is_sent_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def kernel(p): ...\n", encoding="utf-8")
    sent = connecting.shipped(("bundled", "mine.py:kernel"), tmp_path, tmp_path / "runs" / "one")

    assert sent["working_dir"] == str(tmp_path)
    assert "runs/one" in sent["excludes"]
    assert connecting.shipped(("bundled", "json:loads"), tmp_path, tmp_path / "run") == {}

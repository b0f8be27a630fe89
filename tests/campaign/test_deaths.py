"""A worker that died is no finding until its case, alone, dies again; what it started ends with it; a GPU that loses every worker is set aside."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.commands.terminal import verdict_lines
from flashverify.campaign.protocol import Judge, WorkerFailed
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor import gpu_health
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import GpuSetAside, WorkerLost
from flashverify.campaign.supervisor.gpu_health import GpuHealth
from flashverify.campaign.supervisor.pool import Pool
from flashverify.campaign.supervisor.probe import Probe
from flashverify.campaign.supervisor.process import ProcessSetup
from flashverify.campaign.supervisor.slots import Slot
from flashverify.errors import NoVerdictError
from flashverify.judge.record import Summary
from tests.campaign.test_engine import campaign, config, drive

MIB = 2**20


class Ended:
    """A process that is dead and had said one thing."""

    descriptors = ()
    outage = None
    closed = False

    def code(self):
        return 1

    def read(self):
        assert not self.closed
        return [WorkerFailed("RuntimeError", "lost")]

    def close(self):
        self.closed = True

    def in_flight(self):
        return None

    def starved(self):
        return 0.0

    def printed(self):
        return ""


def test_a_worker_that_ends_while_others_are_heard_is_passed_over(monkeypatch):
    pool = Pool(ProcessSetup("fake_toolkit:toolkit", "cpu", 30.0, gpus=("well", "sick")), [])
    monkeypatch.setattr(pool._selector, "select", lambda seconds: [])
    pool._slots = {number: Slot(number, Ended()) for number in range(2)}

    heard = []
    for slot, _ in pool.events(0.0):
        heard.append(slot.number)
        pool.set_aside("sick")

    assert heard == [0]
    assert [slot.number for slot in pool.slots] == [0]


def running(pid):
    """Whether a process is there and no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return " Z " not in stat.read_text(encoding="utf-8")
    except OSError:
        return False


def gone(pid):
    """Whether a process ends within some seconds."""
    end = time.monotonic() + 10
    while running(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not running(pid)


@pytest.mark.slow
def test_a_right_subject_whose_worker_is_killed_passes(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FLAG", str(tmp_path / "flag"))
    summary, events = campaign(tmp_path / "run", "struck", workers=1, max_cases=24, batch=12)

    assert (summary.exit_code, summary.findings, summary.restarts) == (0, 0, 1)
    (lost,) = [e for e in events if isinstance(e, WorkerLost)]
    assert lost.reason == "the process died with SIGKILL; its case is judged again, alone"
    cases = Counter(r.case for r in open_run(tmp_path / "run").results())
    assert set(cases.values()) == {1}
    assert lost.case in cases
    assert len(cases) == 24


@pytest.mark.parametrize(
    ("stopped", "why"), [("workers", "workers kept dying"), ("gpus", "no GPU is left that keeps its workers")]
)
def test_the_verdict_of_a_run_that_could_not_go_on(stopped, why):
    found = Summary(5, 0, 5, 1, 9, 1.0, stopped, 1)
    none = msgspec.structs.replace(found, findings=0, exit_code=3)

    headlines = [verdict_lines(each, (), {}, Path("out"), ())[0] for each in (found, none)]
    assert headlines == [f"FAIL: 1 finding; the run ended there, because {why}", f"NO VERDICT: {why}"]


def test_a_case_that_time_forbids_to_judge_again_is_no_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FLAG", str(tmp_path / "flag"))
    engine = Engine(config(tmp_path / "run", "struck", workers=1, max_cases=None, seconds=300.0))
    monkeypatch.setattr(engine._deaths, "hand_out", lambda: None)
    monkeypatch.setattr(type(engine.budget), "left", property(lambda _: 0.0 if engine._deaths.wait else 300.0))
    monkeypatch.setattr(type(engine.budget), "until_the_end", property(lambda b: b.left))
    summary = engine.run()

    assert (summary.exit_code, summary.stopped, summary.findings) == (3, "budget", 0)
    (unjudged,) = [r for r in open_run(tmp_path / "run").results() if r.verdicts[0].check == "harness"]
    assert "the time was over before its case was judged again" in unjudged.verdicts[0].message


@pytest.mark.slow
def test_what_a_subject_starts_ends_with_a_supervisor_that_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FLAG", str(tmp_path / "flag"))
    process, child = drive(tmp_path / "run", subject="forks", workers=1, max_cases=100000), tmp_path / "flag" / "child"
    for _ in process.stdout:
        if child.exists():
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    assert gone(int(child.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_a_worker_that_has_grown_is_replaced_between_batches(tmp_path):
    summary, _ = campaign(tmp_path / "run", "grows", workers=1, max_cases=16, batch=2, memory=300 * MIB)

    assert (summary.exit_code, summary.cases) == (0, 16)
    assert summary.restarts == 0, "16 cases of 24 MiB and the start do not fit into one worker"


@pytest.mark.thorough
def test_a_case_that_is_verified_has_the_memory_of_a_worker(tmp_path):
    setup = ProcessSetup("fake_toolkit:toolkit", "cpu", 30.0, memory=300 * MIB)
    begun = time.monotonic()
    with Probe(setup) as probe:
        judged = probe.judge(Judge("greedy", "fv1 seq_q=50", "run"))
        assert probe.judge(Judge("greedy", "fv1 seq_q=5", "run")).result.failures == ()

    assert [v.error for v in judged.result.failures] == ["memory"]
    assert time.monotonic() - begun < 25, "it is not waited for its limit of time"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_gpu_that_kills_its_workers_is_set_aside_and_its_cases_are_judged_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_health, "_STRIKES", 1)
    given = {"device": "cuda", "gpus": ("well", "sick"), "max_cases": 40, "batch": 10}
    summary, events = campaign(tmp_path / "run", "shared", **given)

    assert (summary.exit_code, summary.findings, summary.cases) == (0, 0, 40)
    (aside,) = [e for e in events if isinstance(e, GpuSetAside)]
    assert aside.gpu == "sick"
    assert aside.reason.endswith("at cases that are not to blame, the last because the process died with SIGKILL")
    assert set(Counter(r.case for r in open_run(tmp_path / "run").results()).values()) == {1}


def test_without_any_gpu_left_there_is_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_health, "_STRIKES", 1)
    with pytest.raises(NoVerdictError, match=r"no GPU is left: GPU lost: .* ECC error"):
        campaign(tmp_path / "run", "clean", device="cuda", gpus=("lost",), workers=1)


def test_a_gpu_is_set_aside_for_losses_in_a_row_alone():
    health = GpuHealth(("a", "b"), workers=4)
    assert not any((health.strike("a", "x"), health.strike("a", "x")))
    health.judged("a")
    assert not any((health.strike("a", "x"), health.strike("a", "x"), health.strike("", "x")))
    assert health.strike("a", "x\ny")
    assert health.usable == ("b",)
    assert health.aside["a"].endswith("the last because x y")
    assert not health.strike("a", "x"), "it is said once"
    assert GpuHealth((), workers=4).usable == ()

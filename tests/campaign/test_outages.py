"""A place of a cluster that loses its workers blames no case: what they had is handed out again, and nothing is counted against it."""

import pytest

from flashverify.campaign.commands.panel import panel_lines
from flashverify.campaign.commands.terminal import verdict_lines
from flashverify.campaign.protocol import Chunk, Prepare
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import GpuSetAside, Progress, WorkerHealth, WorkerLost
from flashverify.campaign.supervisor.gpu_health import GpuHealth
from flashverify.campaign.supervisor.hosts import Outage
from flashverify.campaign.supervisor.process import hang_verdict
from flashverify.campaign.supervisor.slots import Loss
from flashverify.campaign.supervisor.suspects import Suspect
from flashverify.campaign.worker.inflight import Inflight
from flashverify.judge.record import Summary
from flashverify.judge.verdict import CaseResult, Status, Verdict
from tests.campaign.test_engine import config

PLACES = ("10.0.0.1/cpu", "10.0.0.2/cpu")


@pytest.fixture
def told():
    return []


@pytest.fixture
def engine(tmp_path, told):
    found = Engine(config(tmp_path / "run", "clean", gpus=PLACES), (told.append,))
    yield found
    found.store.close()


def lost(worker, number=1, *, final=False, task=None, note=None):
    outage = Outage(PLACES[1], number, "killed", final)
    return Loss(
        worker=worker,
        task=task,
        answered=0,
        in_flight=note,
        verdict=hang_verdict(0),
        printed="",
        failure="",
        seconds=1.0,
        gpu=PLACES[1],
        outage=outage,
    )


def test_a_case_whose_place_is_lost_while_it_is_judged_alone_is_judged_once_more(engine):
    note = Inflight("clean", "clean", "fv1 seq_q=5")
    task = Chunk("clean", ("fv1 seq_q=5",), "run", "given clean")
    engine._deaths._suspects._out[1] = Suspect(note, task, 0, "died", PLACES[0])
    engine._deaths.lost(lost(1, note=note))

    assert engine._deaths.wait
    assert (engine.tally.drawn, engine.tally.records) == (0, {})


def test_what_a_lost_place_had_is_handed_out_again(engine):
    engine._deaths.lost(lost(0, task=Chunk("clean", ("fv1", "fv1 seq_q=5"), "run", "given clean")))

    assert engine._schedule.next(False, lambda spec: ()).cases == ("fv1", "fv1 seq_q=5")


def test_an_outage_counts_once_however_many_workers_it_took(engine, told):
    for worker in range(14):
        engine._deaths.lost(lost(worker))
    engine._deaths.lost(lost(0, number=2))

    assert engine._ledger.restarts == 2
    assert len([event for event in told if isinstance(event, WorkerLost)]) == 2
    assert not any(isinstance(event, GpuSetAside) for event in told), "two outages are not three"


def test_a_machine_that_is_gone_is_set_aside_at_once(engine, told):
    engine._deaths.lost(lost(0, final=True))

    assert [(event.gpu, event.reason) for event in told if isinstance(event, GpuSetAside)] == [(PLACES[1], "killed")]
    assert engine._pool.gpu(next(iter(engine._pool.free()))) == PLACES[0]
    assert not GpuHealth(PLACES, 2).strike(PLACES[0], "killed")


def test_a_finding_whose_place_is_lost_has_all_of_its_attempts_left(engine):
    verdict = Verdict(check="accuracy", status=Status.FAIL, error="bound", output="o", ratio="0x1.8p+1")
    engine._ledger.keep(CaseResult("fv1", "clean", "fake", (verdict,)), "clean", 0.0)
    explainer = engine._explainer
    task = explainer.next(searching=False)
    for blamed, attempts in ((False, 0), (True, 1)):
        explainer.began(0, task)
        explainer.lost(0, blamed=blamed)
        assert explainer._agenda.attempts[task.key] == attempts


def test_what_was_being_compiled_at_a_lost_place_is_compiled_again(tmp_path):
    engine = Engine(config(tmp_path / "run", "clean", device="cuda", gpus=PLACES, compilers=1))
    compilers, task = engine._gpu.compilers, Prepare("clean", kind=2, seed=1, examples=8)
    compilers._lost(lost(0, task=task), compilers.readiness)
    engine.store.close()

    assert list(compilers._again) == [task]
    assert compilers._losses == 0


def test_the_panel_and_the_verdict_speak_of_places(tmp_path):
    workers = tuple(WorkerHealth(n, "judging", gpu=PLACES[n % 2]) for n in range(3))
    lines = panel_lines(Progress(1.0, 1, 0, 0, 0, 0, 1.0, {}, workers=workers))
    assert lines[-1] == "places    10.0.0.1/cpu: 2 workers · 10.0.0.2/cpu: 1 worker"

    ended = Summary(5, 0, 5, 0, 9, 1.0, "places", 3)
    said = verdict_lines(ended, (), {}, tmp_path, ())[0]
    assert said == "NO VERDICT: no place of the cluster is left that keeps its workers"

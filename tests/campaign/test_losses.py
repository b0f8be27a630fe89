"""Workers that a run lost: noted with why, kept over a resumption, and named by status and report."""

import json

import pytest

from flashverify.campaign.commands.status import standing_of
from flashverify.campaign.store import losses
from flashverify.campaign.store.losses import LOSSES, Losses, Lost, loss_sentence, read_losses, write_losses
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor import ledger
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import GpuSetAside, WorkerLost
from flashverify.errors import StoreError
from flashverify.report.content import build_report
from tests.campaign.test_engine import campaign, config
from tests.report.synthetic import result, write_run


@pytest.mark.slow
def test_a_worker_that_is_killed_is_noted_with_its_case_also_of_a_resumed_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FLAG", str(tmp_path / "flag"))
    _, events = campaign(tmp_path / "run", "struck", workers=1, max_cases=24, batch=12)
    told = [e for e in events if isinstance(e, WorkerLost)]
    (lost,) = read_losses(tmp_path / "run").last

    assert (lost.who, lost.reason, lost.case) == ("worker 0", told[0].reason, told[0].case)
    assert lost.seconds > 0

    (tmp_path / "flag").rmdir()
    (tmp_path / "run" / "summary.json").unlink()
    campaign(tmp_path / "run", "struck", workers=1, max_cases=48, batch=12)
    noted = read_losses(tmp_path / "run")
    assert noted.count == len(noted.last) == 2
    assert noted.last[0] == lost


def test_what_a_process_printed_last_and_a_gpu_that_was_set_aside_are_noted(tmp_path):
    engine = Engine(config(tmp_path / "run", "clean"))
    engine._tell(WorkerLost(3, "the process died with SIGSEGV", "fv1 seq_q=1", "before\n" * 900 + "Fatal"))
    engine._tell(GpuSetAside("1", "4 workers in a row were lost on it"))
    engine.run()

    worker, gpu = read_losses(tmp_path / "run").last
    assert worker.printed.endswith("before\nFatal")
    assert len(worker.printed) == losses._PRINTED
    assert (gpu.who, gpu.reason) == ("GPU 1", "set aside: 4 workers in a row were lost on it")


def test_the_latest_are_kept_and_all_are_counted():
    found = Losses()
    for number in range(losses._KEPT + 5):
        found = found.also(Lost(float(number), "worker 1", "died"))

    assert found.count == losses._KEPT + 5
    assert [lost.seconds for lost in found.last] == [float(number) for number in range(5, losses._KEPT + 5)]


def test_long_texts_and_such_that_are_no_utf8_are_stored(tmp_path):
    write_losses(tmp_path, Losses().also(Lost(1.0, "worker 1", "\udc80" + "r" * 10**6, "c" * 10**6)))
    (lost,) = read_losses(tmp_path).last

    assert lost.reason == "?" + "r" * (losses._PRINTED - 1)
    assert lost.case == "c" * losses._PRINTED


def test_a_note_that_is_damaged_or_missing_is_none(tmp_path):
    assert read_losses(tmp_path) == Losses()
    write_losses(tmp_path, Losses().also(Lost(1.0, "worker 1", "died")))
    data = (tmp_path / LOSSES).read_bytes()
    (tmp_path / LOSSES).write_bytes(data.replace(b"died", b"lied"))
    assert read_losses(tmp_path) == Losses()


def test_a_disk_that_refuses_the_note_ends_no_campaign(tmp_path, monkeypatch):
    def refuse(*_):
        raise StoreError("disk full")

    monkeypatch.setattr(ledger, "write_losses", refuse)
    engine = Engine(config(tmp_path / "run", "clean"))
    engine._tell(WorkerLost(3, "died"))
    assert engine.run().exit_code == 0


def test_status_and_report_name_the_latest(tmp_path):
    run = write_run(tmp_path / "run", [result(n) for n in range(3)])
    found = Losses()
    for number in range(7):
        found = found.also(Lost(60.0 * number + 65, f"worker {number}", "the process\ndied", "fv1 seq_q=2"))
    write_losses(run, found)

    sentence = "worker 6 after 7 min 05 s: the process died, at fv1 seq_q=2"
    assert loss_sentence(found.last[-1]) == sentence
    standing = standing_of(run)
    assert [line for line in standing.lines() if "lost:" in line][-1] == f"  lost: {sentence}"
    assert sum("lost:" in line for line in standing.lines()) == 3
    assert json.loads(json.dumps(standing.fields()))["lost"][0]["who"] == "worker 0"
    notes = build_report(open_run(run)).headline.notes
    assert [note for note in notes if note.startswith("Lost:")][-1] == f"Lost: {sentence}."
    assert sum(note.startswith("Lost:") for note in notes) == 5

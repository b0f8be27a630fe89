"""The workers of a campaign take turns over the GPUs: here a pretended pair."""

import pytest

from flashverify.campaign.commands.where import default_workers
from flashverify.campaign.gpus import chosen_gpus
from flashverify.campaign.store.reader import open_run
from flashverify.campaign.supervisor.events import Progress
from flashverify.errors import UsageError
from tests.campaign.test_engine import campaign


def test_each_worker_of_a_pretended_pair_sees_its_own_gpu_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    out = tmp_path / "run"
    _, events = campaign(out, "tells-gpu", device="cuda", gpus=("3", "GPU-abc"), max_cases=80, batch=10)

    assert {r.evidence for r in open_run(out).results()} == {"3", "GPU-abc"}
    told = {(w.number, w.gpu) for e in events if isinstance(e, Progress) for w in e.workers}
    assert told == {(0, "3"), (1, "GPU-abc")}


@pytest.mark.thorough
def test_without_a_choice_every_worker_sees_what_the_campaign_sees(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc")
    campaign(tmp_path / "run", "tells-gpu", device="cuda", max_cases=20, batch=10, workers=1)

    assert {r.evidence for r in open_run(tmp_path / "run").results()} == {"3,GPU-abc"}


def test_all_visible_gpus_are_used_and_others_refused():
    assert chosen_gpus(None, ("0", "1")) == chosen_gpus("all", ("0", "1")) == ("0", "1")
    assert chosen_gpus(None, ("0",)) == chosen_gpus("all", ()) == ()
    assert chosen_gpus("1", ("0", "1")) == ("1",)
    with pytest.raises(UsageError, match=r"--gpus='0,2' is not accepted: '2' is no visible GPU \(0, 1\)"):
        chosen_gpus("0,2", ("0", "1"))
    with pytest.raises(UsageError, match="the subjects do not run on one"):
        chosen_gpus("0", ())


def test_every_gpu_has_a_worker(monkeypatch):
    monkeypatch.setattr("flashverify.campaign.environment.cpu_count", lambda: 64)
    assert [default_workers("cuda", gpus) for gpus in (0, 1, 2, 8)] == [14, 14, 28, 62]
    monkeypatch.setattr("flashverify.campaign.environment.cpu_count", lambda: 4)
    assert [default_workers("cuda", gpus) for gpus in (1, 8)] == [2, 8]

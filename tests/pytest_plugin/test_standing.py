"""What may stand hides nothing else; a worker's GPU is that of the process which judges for it."""

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import strategies

from flashverify.baseline.reading import read_baseline
from flashverify.campaign.causes.sighting import sightings_of
from flashverify.campaign.protocol import CaseList, CasesListed, WorkerConfig
from flashverify.campaign.supervisor import process
from flashverify.campaign.supervisor.process import ProcessSetup, WorkerProcess
from flashverify.campaign.worker.session import Session
from flashverify.case.case import Case
from flashverify.pytest_plugin.explaining import Shared, _doubted, _put
from flashverify.report.content import buckets_of
from tests.baseline.test_reading import KNOWN, table, written
from tests.report.synthetic import explained, failing, finding


@pytest.mark.parametrize(("cause", "doubted"), [("causal-one-key-more", 0), ("another", 1), ("", 1)])
def test_a_failure_like_one_that_may_stand_is_diagnosed_anew(tmp_path, cause, doubted):
    record = explained(case="fv1", folded=())
    fields = KNOWN | {"subject": '"kernel"', "cause": '"causal-one-key-more"'}
    result = failing("fv1 seq_k=7", output="o")
    seen = {key: (result, sighting) for key, sighting in sightings_of(result).items()}
    runtime = SimpleNamespace(
        explains=True, baseline=read_baseline(written(tmp_path, table("known", fields))), cause_of=lambda *asked: cause
    )

    assert len(_doubted(runtime, None, [Shared(record, "t")], seen)) == doubted
    unknown = Shared(finding(output="o"), "t")
    assert _doubted(runtime, None, [Shared(record, "t"), unknown], seen) == set()


def test_a_finding_with_the_diagnosis_of_another_is_that_finding(tmp_path):
    first, again = explained(folded=()), explained(folded=(), key=explained().folded[0].key)
    other = explained(diagnosis=msgspec.structs.replace(explained().diagnosis, name="another"))
    known = [Shared(first, "one")]

    _put(known, Shared(again, "two"))
    _put(known, Shared(other, "two"))

    assert [shared.test for shared in known] == ["one", "two"]
    assert again.key in buckets_of(known[0].record)
    assert known[0].record.key == first.key


def test_a_process_gets_the_variables_of_its_setup(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(process.subprocess, "Popen", lambda *words, env, **settings: given.update(env))
    with pytest.raises(AttributeError):  # there is no process to talk to
        WorkerProcess(ProcessSetup("t:t", "cuda", 1.0, environment={"CUDA_VISIBLE_DEVICES": "3"}), tmp_path / "note")

    assert given["CUDA_VISIBLE_DEVICES"] == "3"
    assert "TRITON_INTERPRET" not in given


@pytest.mark.parametrize("profile", ["", "gpu", "cpu", "long"])
def test_a_profile_decides_how_large_cases_are_drawn(tmp_path, profile):
    asked = []
    toolkit = SimpleNamespace(
        load=lambda spec: spec,
        strategy=lambda subject, device, profile: asked.append((device, profile)) or strategies.just(Case()),
        refusal=lambda subject, case: None,
    )
    session = Session(WorkerConfig("t:t", "cpu", str(tmp_path / "note"), 0, 1.0), None, toolkit)
    session.emit = lambda event: asked.append(event.cases) if isinstance(event, CasesListed) else None

    session.run(CaseList("s", examples=1, profile=profile))

    assert asked == [("cpu", profile), ("fv1",)]

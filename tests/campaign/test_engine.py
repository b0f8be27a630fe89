import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.engine import Engine
from flashverify.campaign.supervisor.events import FindingMinimal, FindingSeen, Finished, Progress
from flashverify.campaign.supervisor.schedule import CampaignConfig, batch_seed
from flashverify.case.text import parse_case
from flashverify.errors import SubjectLoadError, UsageError

HERE = Path(__file__).parent


def config(out, subject, **changes):
    given = {
        "kind": "fuzz",
        "subjects": (subject,),
        "out": out,
        "device": "cpu",
        "workers": 2,
        "max_cases": 120,
        "batch": 40,
        "toolkit": "fake_toolkit:toolkit",
        "case_limit": 20.0,
        "shrink_seconds": 20.0,
    }
    return CampaignConfig(**(given | changes))


def campaign(out, subject, **changes):
    events = []
    engine = Engine(config(out, subject, **changes), (events.append,))
    return engine.run(), events


def test_a_clean_subject_meets_its_budget(tmp_path):
    summary, events = campaign(tmp_path / "run", "clean")

    assert (summary.exit_code, summary.stopped, summary.findings) == (0, "budget", 0)
    assert summary.cases == 120
    run = open_run(tmp_path / "run")
    assert summary == run.summary
    assert summary.cases == len(list(run.results()))
    assert run.record.form == {"clean": "form of clean"}
    assert {"python", "torch", "triton", "hypothesis", "device"} <= run.record.environment.keys()
    assert any(isinstance(e, Progress) for e in events)
    assert isinstance(events[-1], Finished)


@pytest.mark.slow
def test_a_batch_draws_the_same_cases_whatever_the_number_of_workers(tmp_path):
    for workers in (1, 2):
        campaign(tmp_path / str(workers), "clean", workers=workers, max_cases=80, seed=5)

    one, two = ({r.case for r in open_run(tmp_path / str(n)).results()} for n in (1, 2))
    assert one == two
    assert batch_seed(5, "clean", 0) != batch_seed(5, "clean", 1)


def test_a_defect_shrinks_to_its_minimum_and_is_verified(tmp_path):
    summary, events = campaign(tmp_path / "run", "tail")

    assert summary.exit_code == 1
    (finding,) = open_run(tmp_path / "run").findings
    record = finding.record
    case = parse_case(record.case)
    assert (case.seq_k, case.seq_q, case.dim_qk, case.dim_v) == (17, 1, 1, 1)
    assert case.values.regime == "zeros"
    assert (
        record.confirmation.repeats,
        record.confirmation.failed,
        record.confirmation.oracle,
        record.confirmation.agrees,
    ) == (3, 3, "mpmath", True)
    failing = [r for r in open_run(tmp_path / "run").results() if r.failures]
    assert len(failing) == record.count > 1
    assert parse_case(record.first).seq_k >= 17
    kinds = [type(e) for e in events]
    assert 1 == kinds.count(FindingSeen) == kinds.count(FindingMinimal)
    assert "--subject tail --check accuracy" in replay_line(record)


@pytest.mark.thorough
def test_two_defects_land_in_two_buckets(tmp_path):
    campaign(tmp_path / "run", "two")

    records = {f.record.key.check: f.record for f in open_run(tmp_path / "run").findings}
    assert {"accuracy", "memory"} == records.keys()
    memory = parse_case(records["memory"].case)
    assert (memory.storage.layout, memory.dim_v, memory.seq_q, memory.seq_k) == ("bshd", 24, 1, 1)
    assert parse_case(records["accuracy"].case).seq_k == 17


@pytest.mark.slow
def test_an_exception_verdict_is_a_finding_like_any_other(tmp_path):
    campaign(tmp_path / "run", "raises")

    (finding,) = open_run(tmp_path / "run").findings
    assert (parse_case(finding.record.case).seq_q, finding.record.key.output) == (21, "ValueError")


def test_an_unknown_subject_is_a_usage_error(tmp_path):
    with pytest.raises(SubjectLoadError, match="missing"):
        campaign(tmp_path / "run", "missing")


@pytest.mark.parametrize("subject", ["refuses", "harness"])
def test_zero_judged_cases_are_no_pass(tmp_path, subject):
    summary, _ = campaign(tmp_path / "run", subject, max_cases=20)

    assert (summary.exit_code, summary.cases) == (3, 0)


def test_a_run_without_coverage_is_no_pass(tmp_path):
    summary, _ = campaign(tmp_path / "run", "tells-nothing", max_cases=20)

    assert (summary.exit_code, summary.covering) == (3, 0)
    assert summary.cases > 0


def test_a_chatty_subject_does_not_block(tmp_path):
    assert campaign(tmp_path / "run", "chatty", max_cases=20)[0].exit_code == 0


@pytest.mark.slow
def test_the_time_budget_ends_a_campaign(tmp_path):
    summary, _ = campaign(tmp_path / "run", "slow-clean", max_cases=None, seconds=3.0)

    assert (summary.exit_code, summary.stopped) == (0, "budget")
    assert summary.seconds < 15


@pytest.mark.slow
def test_the_matrix_has_deterministic_order_and_keeps_the_smallest_case(tmp_path):
    runs = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        summary, _ = campaign(out, "tail", kind="run", max_cases=None, shrink=False, workers=workers)
        assert summary.exit_code == 1
        runs.append(open_run(out))

    first, second = ([r.case for r in run.results()] for run in runs)
    assert first == second
    assert len(first) == 20
    cases = [(parse_case(c).seq_q, parse_case(c).seq_k) for c in first]
    assert [(q, k) for q in (1, 2, 7, 16, 30) for k in (1, 15, 18, 33)] == cases
    (finding,) = runs[0].findings
    assert (parse_case(finding.record.case).seq_q, parse_case(finding.record.case).seq_k) == (1, 18)
    assert finding.record.count == 10
    assert finding.record.confirmation.failed == 3


@pytest.mark.slow
@pytest.mark.thorough
def test_several_subjects_share_a_campaign(tmp_path):
    campaign(tmp_path / "run", "tail", subjects=("tail", "clean"), max_cases=160)

    assert {"tail", "clean"} == {r.subject for r in open_run(tmp_path / "run").results()}
    assert [f.record.subject_spec for f in open_run(tmp_path / "run").findings] == ["tail"]


def test_hostile_names_stay_inside_and_are_data(tmp_path):
    out = tmp_path / "deep" / "run"
    campaign(out, "hostile", max_cases=10, workers=1)

    (finding,) = open_run(out).findings
    assert out / "findings" == finding.path.parent
    assert {"deep"} == {p.name for p in tmp_path.iterdir()}
    compile((finding.path / "repro.py").read_text(encoding="utf-8"), "repro.py", "exec")
    assert finding.record.key.check == "../../x"


def test_a_run_is_not_mixed_with_another(tmp_path):
    campaign(tmp_path / "run", "clean", max_cases=10)
    with pytest.raises(UsageError, match="finished run"):
        campaign(tmp_path / "run", "clean", max_cases=10)
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UsageError, match="seed"):
        campaign(tmp_path / "run", "clean", max_cases=10, seed=9)
    with pytest.raises(UsageError, match="subject"):
        campaign(tmp_path / "run", "tail", max_cases=10)
    with pytest.raises(UsageError, match="new folder"):
        campaign(tmp_path / "run", "clean", kind="run")
    engine = Engine(config(tmp_path / "run", "clean"))
    with pytest.raises(UsageError, match="another campaign"):
        Engine(config(tmp_path / "run", "clean"))
    engine.store.close()


def test_a_full_disk_is_loud_and_earlier_findings_stay(tmp_path, monkeypatch):
    from flashverify.campaign.store import writer as store
    from flashverify.errors import StoreError

    real, calls = store.RunStore.append, []

    def append(self, result):
        calls.append(result)
        if len(calls) > 30:
            raise StoreError("cannot write results.jsonl: [Errno 28] No space left on device")
        real(self, result)

    monkeypatch.setattr(store.RunStore, "append", append)
    with pytest.raises(StoreError, match="No space left"):
        campaign(tmp_path / "run", "tail", workers=1)

    run = open_run(tmp_path / "run")
    assert [f.record.key.check for f in run.findings] == ["accuracy"]
    assert len(list(run.results())) == 30


def drive(out, **changes):
    """A campaign in a process of its own, which prints every event."""
    given = msgspec.to_builtins(changes)
    code = (
        "import sys, json; sys.path[:0] = json.loads(sys.argv[1]); from test_engine import config\n"
        "from pathlib import Path; from flashverify.campaign.supervisor.engine import Engine\n"
        "changes = json.loads(sys.argv[3])\n"
        "engine = Engine(config(Path(sys.argv[2]), changes.pop('subject'), **changes),"
        " (lambda e: print(type(e).__name__, flush=True),))\n"
        "print(engine.run().exit_code)\n"
    )
    path = json.dumps([str(HERE), *[p for p in sys.path if p]])
    return subprocess.Popen(
        [sys.executable, "-c", code, path, str(out), json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

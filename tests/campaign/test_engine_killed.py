"""Workers, supervisors and subjects that die, hang or take all memory: nothing is lost, and the case is named."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from flashverify.campaign.store.reproduction import replay_line
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.events import FindingSeen, WorkerLost
from flashverify.case.text import parse_case
from flashverify.errors import NoVerdictError
from tests.campaign.killed import killed_after
from tests.campaign.test_engine import campaign, config, drive
from tests.fast_tier import fast_one_in

LISTED = {"kind": "run", "cases": ("fv1 seq_q=3", "fv1 seq_q=50"), "max_cases": None, "shrink": False, "repeats": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subject", "error", "given"),
    [
        pytest.param("segfault", "SIGSEGV", {"max_cases": 24, "shrink_seconds": 2.0}, marks=pytest.mark.thorough),
        (
            "exits",
            "exit-3",
            {**LISTED, "repeats": 3},
        ),  # each case of a search and each step of a shrinking costs a worker
    ],
    ids=["segfault", "exits"],
)
def test_a_case_that_kills_its_process_is_named_shrunk_and_costs_one_worker(tmp_path, subject, error, given):
    summary, events = campaign(tmp_path / "run", subject, **given)

    assert summary.exit_code in (1, 3)
    (finding,) = open_run(tmp_path / "run").findings
    record = finding.record
    assert ("crash", error, error) == (record.key.check, record.key.error, record.verdict.error)
    assert record.verdict.key(record.key.subject, record.key.dtype) == record.key
    assert parse_case(record.case).seq_q > 40
    assert parse_case(record.case).seq_q <= parse_case(record.first).seq_q
    assert 3 == record.confirmation.failed == record.confirmation.repeats
    lost = [e for e in events if isinstance(e, WorkerLost)]
    assert summary.restarts == len(lost) >= 1
    assert set(Counter(e.case for e in lost).values()) <= {1, 2}, "a deadly case runs once, and once more alone"
    assert "--check" not in replay_line(record)


@pytest.mark.slow
def test_a_hanging_case_is_named(tmp_path):
    summary, _ = campaign(tmp_path / "run", "hangs", workers=1, case_limit=2.0, **(LISTED | {"repeats": 1}))

    (finding,) = open_run(tmp_path / "run").findings
    assert (finding.record.key.check, finding.record.key.error) == ("hang", "hang")
    assert summary.restarts >= 1
    assert finding.record.confirmation.failed == 1


@pytest.mark.slow
def test_a_case_that_exhausts_memory_is_named(tmp_path):
    campaign(tmp_path / "run", "greedy", workers=1, memory=300 * 2**20, **LISTED)

    (finding,) = open_run(tmp_path / "run").findings
    assert (finding.record.key.check, finding.record.key.error) == ("crash", "memory")


@pytest.mark.slow
def test_workers_that_always_die_stop_the_campaign(tmp_path):
    summary, _ = campaign(tmp_path / "run", "always-dies", shrink=False, repeats=0)

    assert (summary.exit_code, summary.stopped) == (1, "workers")
    (finding,) = open_run(tmp_path / "run").findings
    assert (finding.record.key.check, finding.record.key.error) == ("crash", "SIGKILL")


@pytest.mark.slow
def test_a_subject_that_dies_at_import_gives_no_verdict(tmp_path):
    with pytest.raises(NoVerdictError, match="exit-7"):
        campaign(tmp_path / "run", "dies-at-import", workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("failures", fast_one_in(1, [1, 9], kept=2))
def test_kill_9_at_any_point_neither_repeats_nor_drops_a_finding(tmp_path, failures):
    out = tmp_path / "run"
    killed_after(failures, config(out, "slow-two", max_cases=120, seed=3), failing=True)
    stored = open_run(out)
    before = {key for f in stored.findings for key in (f.record.key, *(each.key for each in f.record.folded))}
    failed = {v.key(r.subject, parse_case(r.case).dtype) for r in stored.results() for v in r.failures}
    assert failed <= before, "a finding is on disk before its result"
    assert stored.summary is None
    judged = [r.case for r in open_run(out).results()]

    summary, events = campaign(out, "slow-two", max_cases=120, seed=3)

    run = open_run(out)
    assert summary.exit_code == 1
    assert 2 == len(run.findings) == len({f.record.key for f in run.findings})
    assert not before & {e.record.key for e in events if isinstance(e, FindingSeen)}, (
        "known findings are not found again"
    )
    assert all(f.record.confirmation.failed == 3 for f in run.findings), "what was interrupted is minimised now"
    assert judged == [r.case for r in run.results()][: len(judged)]
    assert parse_case(next(f.record.case for f in run.findings if f.record.key.check == "accuracy")).seq_k == 17
    counts = {f.record.key: f.record.count for f in run.findings}
    for key, count in counts.items():
        assert count == sum(key in {v.key(r.subject, key.dtype) for v in r.failures} for r in run.results())


def test_workers_die_with_their_supervisor(tmp_path):
    process = drive(tmp_path / "run", subject="slow-clean", max_cases=100000)
    for _ in process.stdout:
        if (tmp_path / "run" / "results.jsonl").exists():
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    assert children
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    for _ in range(50):
        alive = [
            c
            for c in children
            if Path(f"/proc/{c}/stat").exists() and " Z " not in Path(f"/proc/{c}/stat").read_text(encoding="utf-8")
        ]
        if not alive:
            break
        time.sleep(0.1)
    assert alive == []

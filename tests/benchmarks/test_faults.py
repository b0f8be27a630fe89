"""Nothing is lost where the disk fails or the process dies, whichever step of a campaign that hits; `benchmarks/faults.py` tries every one."""

import ast
import errno
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fault_injection.faults import DISK, SUPERVISOR, Fault, Steps, fits
from fault_injection.layer import FaultyDisk
from fault_injection.model import _TORN

from flashverify.campaign import environment
from flashverify.campaign.commands import campaign
from flashverify.campaign.protocol import Batch, CaseList, WorkerFailed
from flashverify.campaign.refusals.record import Refusals
from flashverify.campaign.store import disk
from flashverify.campaign.store.writer import RunStore, open_run
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.probe import failure_of
from flashverify.campaign.supervisor.schedule import CampaignConfig, Schedule
from flashverify.campaign.worker.inflight import Inflight, InflightFile, read_inflight
from flashverify.errors import StoreError, UsageError
from flashverify.judge.record import Summary
from flashverify.judge.verdict import CaseResult, Status, Verdict
from tests.campaign.notes import following

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ("fv1 seq_q=3", "fv1 seq_q=4")
KINDS = [kind for kind in DISK if kind not in ("late", "kill-after")]
STRIDE = 7
"""Of the steps at which a kind of fault can happen, one in so many is tried."""


class DeadError(BaseException):
    """The process is no more."""


def judged(case):
    """Two defects: of rows from 7 on, and of even ones."""
    rows = int(case.rpartition("=")[2])
    failing = [("accuracy", rows >= 7), ("memory", rows % 2 == 0)]
    verdicts = [Verdict(check, Status.FAIL, error="bound", output="o") for check, fails in failing if fails]
    return CaseResult(case, "s", "cpu", tuple(verdicts) or (Verdict("accuracy", Status.PASS),))


def supervise(out, announced):
    """A supervisor whose cases are judged on the spot: its ledger, its journal and its schedule write the folder as in a campaign."""
    config = CampaignConfig(
        kind="fuzz", subjects=("s",), out=out, device="cpu", workers=1, max_cases=9, corpus=True, batch=4
    )
    ledger = Ledger(config)
    try:
        schedule = Schedule(config, ledger.journal)
        while (task := following(schedule)) is not None:
            if isinstance(task, CaseList):
                schedule.listed("s", CORPUS, corpus=True)
                continue
            drawn = isinstance(task, Batch)
            cases = [f"fv1 seq_q={5 + 4 * task.number + n}" for n in range(4)][: task.most] if drawn else task.cases
            for case in cases[len(task.answered) if drawn else 0 :]:
                result = schedule.answered(task, judged(case))
                announced |= {record.key for record, new in ledger.keep(result, "s", 0.0) if new}
                schedule.stored(result)
            if drawn:
                schedule.batch_ended(task, stopped=False)
        first, *others = sorted(ledger.tally.records)
        for key in others:
            ledger.fold(key, first, "for a reason")
        return ledger.sum_up(1.0, "budget", 0, schedule.part)
    finally:
        ledger.store.close()


def shown(out):
    """Cases, buckets and problems of a folder."""
    run = open_run(out)
    results = list(run.results())
    cases = Counter((result.origin, result.case) for result in results)
    failing = {v.key(r.subject, "fp16") for r in results for v in r.failures}
    keys = {each.record.key for each in run.findings} | {f.key for each in run.findings for f in each.record.folded}
    assert failing <= keys, "a finding is on the disk before the result that shows it"
    return cases, keys, run.problems


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """Supervises a run of a name with a fault; what was announced, the error and the steps."""
    monkeypatch.setattr(environment, "collect", lambda device: {})
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)

    def attempt(name, fault=None):
        (tmp_path / name).mkdir(exist_ok=True)
        steps, announced, error = Steps(fault, log), set(), None
        steps.die = dead
        layer = FaultyDisk(steps, tmp_path / name / "run")
        layer.install()
        try:
            supervise(tmp_path / name / "run", announced)
        except (DeadError, StoreError, UsageError) as raised:
            error = raised
        finally:
            layer.remove_layer()
        return announced, error, steps

    yield attempt
    os.close(log)


def dead():
    raise DeadError


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_step_costs_nothing(attempt, tmp_path, kind):
    announced, error, steps = attempt("right")
    cases, keys, _ = shown(tmp_path / "right" / "run")
    assert (error, len(keys), cases.total()) == (None, 2, 9)
    places = [at for at, name in enumerate(steps.names) if fits(kind, name)]

    for at in places[KINDS.index(kind) % STRIDE :: STRIDE]:
        run = tmp_path / str(at) / "run"
        announced, error, faulty = attempt(str(at), Fault(SUPERVISOR, kind, at, at))
        assert faulty.fired
        if isinstance(error, StoreError):
            assert ("No space left" if "full" in kind else "Input/output error") in str(error), at
            assert kind in ("full", "torn-full", "error"), (at, error)
        elif error is not None:
            assert isinstance(error, DeadError), (at, error)
            assert kind.startswith(("kill-", "power-")), at
        if error is not None and (run / "run.json").exists():
            _, before, problems = shown(run)
            assert announced <= before, at
            torn = kind in _TORN or kind.startswith("power-")
            assert problems in ([], ["results.jsonl: 1 damaged line(s) ignored"] * torn), at
        if error is not None:
            _, again, _ = attempt(str(at))
            assert again is None or (isinstance(error, DeadError) and "a finished run" in str(again)), (at, again)
        assert shown(run)[:2] == (cases, keys), at
        assert not list(run.rglob("*.tmp")) or again is not None, at


@pytest.mark.slow
@pytest.mark.thorough
def test_campaigns_in_processes_lose_nothing(tmp_path):
    kinds = ("full", "kill-before", "power-mixed")
    words = ("steps", "--campaigns", "clean", "--kinds", *kinds, "--stride", "37", "--offset", "20")
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "benchmarks" / "faults.py", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), *filter(None, sys.path)])},
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [bool(int(row[3])) for row in rows] == [True] * 5, done.stdout
    assert {tuple(row[4:]) for row in rows} == {(*["0"] * 6, "0 |")}


CHANGES = {"write", "pwrite", "writev", "fsync", "fdatasync", "ftruncate", "replace", "rename", "unlink", "remove", "mkdir", "makedirs", "rmdir", "link", "symlink"}  # fmt: skip
METHODS = {"write_text", "write_bytes", "touch", "unlink", "rename", "mkdir", "rmdir", "symlink_to", "hardlink_to"}
ELSEWHERE = {
    "store/disk.py": "this is the way",
    "worker/main.py": "an event, through a pipe",
    "worker/session.py": "events, through a pipe",
    "worker/confined.py": "repairs, through a pipe",
    "corpus/kept.py": "the folder of a user's own file",
    "kernel_cache.py": "Triton's folder",
    "supervisor/known_kinds.py": "Triton's folder",
    "cluster/group.py": "a folder of the node's own, and a pipe",
    "cluster/remote_worker.py": "a pipe",
}


def changes(tree):
    """Calls that change files, past the one way to the disk."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if (owner == "os" and node.func.attr in CHANGES) or node.func.attr in METHODS:
                yield f"{ast.unparse(node.func)} in line {node.lineno}"


def test_a_run_folder_is_changed_in_one_place_alone():
    folder = ROOT / "flashverify" / "campaign"
    found = {str(p.relative_to(folder)): list(changes(ast.parse(p.read_text("utf-8")))) for p in folder.rglob("*.py")}
    assert {name for name, calls in found.items() if calls} == set(ELSEWHERE), found


def test_a_note_of_a_worker_is_written_whole_or_the_disk_is_named(tmp_path, monkeypatch):
    path, note = tmp_path / "note", Inflight("m:s", "s", "fv1")
    real = disk.write_at
    monkeypatch.setattr(disk, "write_at", lambda fd, data, at: real(fd, data[:7], at))
    file = InflightFile(str(path))
    file.announce(note)
    assert read_inflight(path) == note

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write_at", full)
    with pytest.raises(StoreError, match="No space left"):
        file.clear()
    monkeypatch.setattr(disk, "open_file", full)
    with pytest.raises(StoreError, match="No space left"):
        InflightFile(str(path))
    assert isinstance(failure_of(WorkerFailed("StoreError", "cannot write")), StoreError)


def test_a_run_whose_summary_may_not_last_is_not_over(tmp_path, monkeypatch):
    store = RunStore(tmp_path / "run")

    def sick(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "sync_folder", sick)
    with pytest.raises(StoreError, match="Input/output"):
        store.write_summary(Summary(1, 0, 1, 0, 0, 1.0, "budget", 0))
    store.close()
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_refusal_that_cannot_be_stored_leaves_no_verdict(tmp_path, monkeypatch):
    class Status:
        note = staticmethod(lambda text: None)

    config = CampaignConfig(kind="run", subjects=("s",), out=tmp_path / "gone", device="cpu", workers=1)
    monkeypatch.setattr(campaign, "ask_outside", lambda *_, **__: Refusals())
    with pytest.raises(StoreError, match="cannot write"):
        campaign._outside(config, Status())

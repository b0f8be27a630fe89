"""Repairs of a finding are looked for in a child of a worker, beside the diagnosis and once more in time that nothing else needs."""

import os
import signal
import socket
import subprocess
import time
from types import SimpleNamespace

import msgspec
import pytest
import torch

from flashverify.campaign.card.lines import diagnosis_lines
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.diagnoses import heard
from flashverify.campaign.protocol import Mend, Mended, Minimal, Started
from flashverify.campaign.store.writer import open_run
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.events import FindingReconsidered
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.mending import Mending
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.worker import confined
from flashverify.campaign.worker.aside import Aside
from flashverify.campaign.worker.mend import Mender, mend
from flashverify.campaign.worker.minimise import _mender, _with_repairs
from flashverify.case.case import Case
from flashverify.case.memory.guard import guard_outputs
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord, Repair
from flashverify.judge.verdict import CaseResult, Key, OutputStats
from tests.campaign.company_seen import OUT, TOUCHED, book, failing

LOOK, NAMED = Diagnosis(sentence="No known wrong semantics explains it."), Diagnosis("a", "A.")
REPAIR = Repair("kernel.py", 7, "attend", "total *= 2", "", 20, 12)
REPAIRED = msgspec.structs.replace(LOOK, repairs=(REPAIR,))
CASE = Case()


class Session:
    """A worker's session whose toolkit does what it is told."""

    setup = SimpleNamespace(device="cpu")

    def __init__(self, repairs):
        self.toolkit, self.told, self.signs, self._repairs = self, [], 0, repairs

    def subject(self, spec):
        return spec

    def emit(self, event):
        self.signs += isinstance(event, Started)
        if isinstance(event, Mended):
            self.told.append(event)

    def repairs(self, subject, case, *, first, seconds):
        return self._repairs(seconds)


def dying(_seconds):
    os._exit(3)


def killed(_seconds):
    signal.raise_signal(signal.SIGKILL)


def raising(_seconds):
    raise RuntimeError("the subject raised\nin a second line")


def late(_seconds):
    time.sleep(60)
    return (REPAIR,)


def finding(**changes):
    whole = FindingRecord(OUT, "fv1", "fv1 seq_q=8", failing(OUT), "cpu", "k", diagnosis=LOOK)
    return msgspec.structs.replace(whole, **{"confirmation": Confirmation(3, 3), **changes})


def test_a_worker_tells_what_its_child_found_within_its_time():
    session = Session(lambda seconds: (REPAIR,) * (8.0 < seconds < 10.0))
    mend(session, Mend(finding(), 10.0))

    assert session.told == [Mended(OUT, (REPAIR,))]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (dying, "the process that looked for one ended with exit code 3"),
        (killed, "the process that looked for one ended with signal 9"),
        (raising, "RuntimeError: the subject raised"),
        (lambda _: (), ""),
        (late, ""),
    ],
)
def test_a_child_that_dies_or_raises_says_why_and_one_that_finds_nothing_or_is_late_tells_nothing_and_is_gone(
    answers, told, monkeypatch
):
    children, fork = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: children.append(fork()) or children[-1])
    session = Session(answers)
    mend(session, Mend(finding(), 0.2 if answers is late else 20.0))

    assert session.told == ([Mended(OUT, (), told)] if told else [])
    with pytest.raises(ChildProcessError):
        os.waitpid(children[0], os.WNOHANG)


def test_a_worker_that_waits_for_its_child_says_that_it_is_alive(monkeypatch):
    monkeypatch.setattr(confined, "_SIGN", 0.05)
    session = Session(late)
    with Mender(session, "k", CASE, CASE, 20.0) as mender:
        assert mender.found(0.5) == ()

    assert session.signs >= 2


def test_what_a_child_changes_is_not_changed_here():
    here = SimpleNamespace(edited=False)

    def editing(_seconds):
        here.edited = True
        return (REPAIR,)

    with Mender(Session(editing), "k", CASE, CASE, 10.0) as mender:
        assert mender.found(10.0) == (REPAIR,)
    assert not here.edited


def test_what_was_told_before_the_time_was_over_is_known():
    def one_and_no_more(_seconds):
        yield REPAIR
        time.sleep(60)

    with Mender(Session(one_and_no_more), "k", CASE, CASE, 60.0) as mender:
        assert mender.found(2.0) == (REPAIR,)


@pytest.mark.parametrize(
    "doing",
    [
        lambda path: path.write_text("x"),
        lambda path: path.unlink(),
        lambda path: os.open(path, os.O_WRONLY | os.O_CREAT),
        lambda path: path.with_name("folder").mkdir(),
        lambda path: subprocess.run(["true"], check=True),
        lambda path: socket.create_connection(("127.0.0.1", 9)),
        lambda path: bytearray(6 << 30),
        lambda path: torch.cuda.current_device(),
    ],
)
def test_an_edit_that_does_more_than_compute_raises_in_the_child(doing, tmp_path):
    path = tmp_path / "kept"
    path.write_text("kept")

    def editing(_seconds):
        assert path.read_text() == "kept"
        with pytest.raises((PermissionError, MemoryError)):
            doing(path)
        yield REPAIR

    with Mender(Session(editing), "k", CASE, CASE, 20.0) as mender:
        assert mender.found(20.0) == (REPAIR,)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert path.read_text() == "kept"


def test_the_child_of_a_process_that_asked_for_a_gpu_does_not_ask_whether_memory_of_the_cpu_is_pinned(monkeypatch):
    def refused(_tensor, _device=None):
        raise RuntimeError("CUDA error: initialization error")

    monkeypatch.setattr(torch.Tensor, "is_pinned", refused)

    def judging(_seconds):
        with guard_outputs():
            assert torch.empty(3).isnan().all()
        yield REPAIR

    with Mender(Session(judging), "k", CASE, CASE, 20.0) as mender:
        assert mender.found(20.0) == (REPAIR,)
        assert mender.failure == ""


def test_why_the_search_for_repairs_ended_is_kept_until_one_is_found():
    with Mender(Session(raising), "k", CASE, CASE, 20.0) as mender:
        while not mender.look(1.0):
            pass
        said = _with_repairs(mender, LOOK)

    assert said == msgspec.structs.replace(LOOK, unmended="RuntimeError: the subject raised")
    assert "no repair: the search for one ended early: RuntimeError: the subject raised" in diagnosis_lines(said)
    mended = msgspec.structs.replace(said, repairs=(REPAIR,))
    assert not [line for line in diagnosis_lines(mended) if line.startswith("no repair")]


def test_without_room_for_a_child_the_finding_stands_without_a_repair(monkeypatch, capsys):
    def none():
        raise BlockingIOError("no room")

    monkeypatch.setattr(os, "fork", none)
    session = Session(lambda _: (REPAIR,))
    mend(session, Mend(finding(), 1.0))
    task = SimpleNamespace(key=OUT, undiagnosed=False, subject="k", first="fv1")
    assert _mender(session, task, "fv1", time.monotonic() + 60.0) is None

    assert session.told == [Mended(OUT, (), "BlockingIOError: no room")]
    assert "no room" in capsys.readouterr().err


def test_repairs_that_are_known_stand_with_the_diagnosis_and_are_not_waited_for():
    def slowly(_seconds):
        yield REPAIR
        time.sleep(60)

    with Mender(Session(slowly), "k", CASE, CASE, 60.0) as mender:
        while not mender.answers:
            mender.look(0.1)
        assert _with_repairs(mender, NAMED).repairs == (REPAIR,)
    with Mender(Session(late), "k", CASE, CASE, 60.0) as mender:
        assert _with_repairs(mender, LOOK) == LOOK


def last_word(aside):
    """What an aside tells until it is over."""
    told, over = [], False
    while not over:
        news, over = aside.look()
        told += [news] if news is not None else []
        time.sleep(0.01)
    return told


def test_a_search_that_goes_on_tells_each_repair_once_and_at_last_that_there_is_none():
    def two(_seconds):
        yield REPAIR
        time.sleep(0.5)
        yield LINE

    told = last_word(Aside(OUT, Mender(Session(two), "k", CASE, CASE, 20.0)))
    assert told == [Mended(OUT, (REPAIR,)), Mended(OUT, (REPAIR, LINE))]
    assert last_word(Aside(OUT, Mender(Session(lambda _: ()), "k", CASE, CASE, 20.0))) == [Mended(OUT, ())]
    assert last_word(Aside(OUT, Mender(Session(late), "k", CASE, CASE, 0.2))) == [Mended(OUT, ())]
    assert last_word(Aside(OUT, Mender(Session(raising), "k", CASE, CASE, 20.0))) == [
        Mended(OUT, (), "RuntimeError: the subject raised")
    ]


def test_a_finding_whose_search_found_nothing_stays_as_it_is_and_is_not_mended_again(two_findings):
    ledger, explainer = two_findings
    assert explainer._agenda.mending.next(["k"]).cause.key == OTHER
    explainer.told(0, Mended(OTHER, ()))

    assert ledger.tally.records[OTHER].diagnosis == LOOK
    assert explainer._agenda.mending.next(["k"]) is None


@pytest.mark.parametrize(
    "changes", [{"device": "cuda"}, {"key": TOUCHED}, {"undiagnosed": True}, {"end": -59.0}, {"end": float("inf")}]
)
def test_nothing_is_repaired_beside_a_diagnosis_where_kernels_are_compiled_or_nothing_is_about_values_or_no_time_is_left(
    changes,
):
    session = Session(lambda _: (REPAIR,))
    session.setup = SimpleNamespace(device=changes.pop("device", "cpu"))
    end = time.monotonic() + changes.pop("end", 60.0)
    task = SimpleNamespace(**{"key": OUT, "undiagnosed": False, "subject": "k", "first": "fv1", **changes})

    assert _mender(session, task, "fv1", end) is None


def mendings(diagnosis, key=OUT, failed=3, device="cpu"):
    causes, _ = book(Company(), key, diagnosis=diagnosis, failed=failed)
    return Mending(causes, Explaining(Budget(None, 10.0), 2, share=0.9, least=None), device=device)


def test_a_finding_is_mended_once():
    once = mendings(NAMED)
    task = once.next(["k"])

    assert (task.cause.key, task.limit) == (OUT, 30.0)
    once.began(task.cause.key)
    assert once.next(["k"]) is None


@pytest.mark.parametrize("given", [{"key": TOUCHED}, {"failed": 0}, {"device": "cuda"}, {"diagnosis": REPAIRED}])
def test_what_is_repaired_not_about_values_not_verified_or_compiled_is_left(given):
    assert mendings(**{"diagnosis": LOOK, **given}).next(["k"]) is None


def test_repairs_are_stored_and_told_and_stay_with_a_later_diagnosis(tmp_path):
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=2)
    ledger, events = Ledger(config), []
    explainer = Explainer(
        config, ledger, Explaining(Budget(None, 10.0), 2, share=0.9, least=None), events.append, float
    )
    ledger.keep(CaseResult("fv1", "k", "cpu", (failing(OUT),), (OutputStats("o", "end-to-end", 4),)), "k", 0.0)
    explainer.told(0, Minimal(OUT, "fv1", failing(OUT), Confirmation(3, 3), LOOK))
    explainer.told(0, Mended(OUT, (REPAIR,)))

    assert ledger.tally.records[OUT].diagnosis == REPAIRED
    assert isinstance(events[-1], FindingReconsidered)
    assert ledger.renamed(OUT, NAMED).diagnosis.repairs == (REPAIR,)
    assert open_run(ledger.store.path).findings[0].record.diagnosis.repairs == (REPAIR,)
    ledger.store.close()


OTHER = Key("k", "accuracy", "bound", "dk", "fp16")


@pytest.fixture
def two_findings(tmp_path):
    """Two findings that were minimised, the first with a repair."""
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=2)
    ledger = Ledger(config)
    explainer = Explainer(
        config, ledger, Explaining(Budget(None, 10.0), 2, share=0.9, least=None), lambda _: None, float
    )
    for key, said in ((OUT, REPAIRED), (OTHER, LOOK)):
        stats = (OutputStats(key.output, "end-to-end", 4),)
        ledger.keep(CaseResult(f"fv1 seq_q={len(key.output)}", "k", "cpu", (failing(key),), stats), "k", 0.0)
        explainer.told(0, Minimal(key, "fv1", failing(key), Confirmation(3, 3), said))
    yield ledger, explainer
    ledger.store.close()


LINE, SECOND = msgspec.structs.replace(REPAIR, line=8), msgspec.structs.replace(REPAIR, cases=9)


@pytest.mark.parametrize(
    ("repairs", "left"), [((SECOND, LINE), [OUT]), ((LINE,), [OUT, OTHER]), ((LINE, REPAIR), [OUT, OTHER])]
)
def test_findings_with_one_repair_before_all_others_are_one(two_findings, repairs, left):
    ledger, explainer = two_findings
    explainer.told(0, Mended(OTHER, repairs))

    assert list(ledger.tally.records) == left
    assert ledger.tally.records[OUT].diagnosis.repairs == (REPAIR,)


def test_a_branch_that_is_switched_off_makes_no_findings_one(two_findings):
    ledger, explainer = two_findings
    off = msgspec.structs.replace(REPAIR, before="if fast:", after="if False:")
    for key in (OUT, OTHER):
        explainer.told(0, Mended(key, (off,)))

    assert list(ledger.tally.records) == [OUT, OTHER]


def test_a_lead_keeps_its_repairs_when_it_takes_the_words_of_a_member():
    read = msgspec.structs.replace(NAMED, evidence="Read.")

    assert heard(finding(diagnosis=REPAIRED), finding(diagnosis=read)).repairs == (REPAIR,)

"""Findings that the repair of another one makes right have its cause; each pair is asked once."""

import contextlib

import msgspec
import pytest

from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute, Attributed, Mended, Minimal, Minimise, Retried, Retry
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.worker.attribute import attribute
from flashverify.campaign.worker.replays import Replays
from flashverify.campaign.worker.retry import retry
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord, Repair
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict
from tests.campaign.company_seen import DK, OUT, TOUCHED, failing

LOOK = Diagnosis(sentence="No known wrong semantics explains it.")
REPAIR = Repair("kernel.py", 7, "attend", "total *= 2", "", 20, 12)
BRANCH = msgspec.structs.replace(REPAIR, before="if CAUSAL:", after="if not CAUSAL:")
HANG = Key("k", "hang", "hang", "", "fp16")


@pytest.fixture
def known(tmp_path):
    """A campaign with two findings that were minimised and one that waits."""
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=2)
    ledger, told = Ledger(config), []
    explainer = Explainer(config, ledger, Explaining(Budget(None, 10.0), 2, share=0.9, least=None), told.append, float)
    for key in (OUT, DK, TOUCHED, HANG):
        stats = (OutputStats(key.output, "end-to-end", 4),)
        ledger.keep(CaseResult(f"fv1 seq_q={len(key.check)}", "k", "cpu", (failing(key),), stats), "k", 0.0)
    for key in (OUT, DK):
        explainer.told(0, Minimal(key, "fv1", failing(key), Confirmation(3, 3), LOOK))
    yield explainer, ledger
    ledger.store.close()


def asked(explainer):
    """The pairs that are handed out to one worker after the other."""
    pairs = []
    for _ in range(9):
        if (task := explainer.next(True)) is None:
            break
        explainer.began(0, task)
        if isinstance(task, Retry):
            pairs += [(task.cause.key, each.key) for each in task.found]
        explainer.ended(0)
    return pairs


def test_every_finding_is_asked_once_for_each_repair_and_what_it_makes_right_is_folded(known):
    explainer, ledger = known
    assert asked(explainer) == []
    explainer.told(0, Mended(OUT, (REPAIR,)))

    assert sorted(asked(explainer)) == sorted([(OUT, DK), (OUT, TOUCHED)])
    explainer.told(0, Retried(OUT, (TOUCHED,), (DK,)))
    assert set(ledger.tally.records) == {OUT, DK, HANG}
    folded = ledger.tally.records[OUT].folded
    assert [(each.key, each.why) for each in folded] == [(TOUCHED, "its repair makes this right too")]
    assert explainer._book.apart(DK, OUT), "the repair leaves it wrong"
    explainer.told(0, Minimal(DK, "fv1 seq_k=2", failing(DK), Confirmation(3, 3), LOOK))
    assert asked(explainer) == [(OUT, DK)], "its case is another one"
    explainer.told(0, Retried(OUT, (DK,)))
    assert set(ledger.tally.records) == {OUT, HANG}, "with which it is right"


def test_what_the_repair_of_every_known_cause_leaves_wrong_is_minimised_before_more_is_judged_with_it(known):
    explainer, ledger = known
    explainer.told(0, Mended(OUT, (REPAIR,)))
    explainer._folding.unprofiled.clear()
    many = [Key("k", "relations", f"r{n}", "o", "fp16") for n in range(9)]
    for key in many:
        ledger.keep(CaseResult("fv1 seq_q=3", "k", "cpu", (failing(key),)), "k", 0.0)
    clear = Key("k", "accuracy", "bound", "lse", "fp32")
    ledger.keep(CaseResult("fv1 seq_q=3 dtype=fp32", "k", "cpu", (failing(clear),)), "k", 0.0)
    first = explainer.next(True)
    assert isinstance(first, Retry)
    assert first.found[0].key == clear
    explainer.began(0, first)
    explainer.told(0, Retried(OUT, (), (DK, TOUCHED)))
    explainer.ended(0)
    assert isinstance(explainer.next(True), Retry), "another known cause may account for it"

    explainer._book.forget(DK)
    task = explainer.next(True)

    assert isinstance(task, Minimise)
    assert task.key == DK, "the clearest of those that are left wrong"
    explainer.began(0, task)
    explainer.ended(0)
    cause, asked = explainer._book.question("k", trials=False)
    assert cause.key == OUT
    assert not {DK, TOUCHED} & {each.key for each in asked}, "that is known"


def test_one_name_of_both_says_more_than_a_repair_that_leaves_one_wrong(known):
    explainer, ledger = known
    named = Diagnosis("codes-scale-twice", "The scale of the codes is applied twice.")
    for key, diagnosis in ((OUT, msgspec.structs.replace(named, repairs=(REPAIR,))), (DK, LOOK)):
        explainer.told(0, Minimal(key, "fv1", failing(key), Confirmation(3, 3), diagnosis))
    explainer.told(0, Retried(OUT, (), (DK,)))
    assert explainer._book.apart(DK, OUT)

    explainer.told(0, Minimal(DK, "fv1 seq_k=2", failing(DK), Confirmation(3, 3), named))

    assert [(each.key, each.why) for each in ledger.tally.records[OUT].folded] == [(DK, "the same diagnosis")]


def test_names_are_asked_before_repairs(known):
    explainer, _ = known
    explainer.told(0, Mended(OUT, (REPAIR,)))
    explainer._folding.unprofiled.clear()
    assert isinstance(explainer.next(True), Retry)

    named = Diagnosis("causal-ignored", "The causal mask is ignored.")
    explainer.told(0, Minimal(DK, "fv1", failing(DK), Confirmation(3, 3), named))
    explainer._folding.unprofiled.clear()
    task = explainer.next(True)

    assert isinstance(task, Attribute)
    assert (task.cause.key, task.trials) == (DK, False)
    assert TOUCHED in {each.key for each in task.asked}


def test_a_branch_that_is_switched_tells_nothing(known):
    explainer, _ = known
    explainer.told(0, Mended(OUT, (BRANCH,)))

    assert asked(explainer) == []


class Session:
    """A worker's session whose cases fail as `before` says, and as `after` says with the repair in place."""

    def __init__(self, before, after, there=True):
        self.toolkit, self.events, self.told = self, [], {}
        self._now, self._after, self._there = before, after, there

    def subject(self, spec):
        return spec

    def emit(self, event):
        self.events.append(event)

    def judge(self, subject, case, plan):
        check = plan.removeprefix("only:")
        assert check in (DK.check, TOUCHED.check)
        verdicts = self._now.get(check, (Verdict(check=check, status=Status.PASS),))
        return CaseResult(str(case), "k", "cpu", verdicts)

    @contextlib.contextmanager
    def with_repair(self, subject, case, repair):
        assert repair == REPAIR
        if self._there:
            self._now = self._after
        yield self._there


PASSES = Verdict(check=DK.check, status=Status.PASS)
FAILS = {key.check: (failing(key),) for key in (DK, TOUCHED)}


@pytest.mark.parametrize(
    ("session", "right", "wrong"),
    [
        (Session(FAILS, {}), (DK, TOUCHED), ()),
        (Session(FAILS, {DK.check: FAILS[DK.check]}), (TOUCHED,), (DK,)),
        (Session(FAILS, {DK.check: (failing(OUT),)}), (TOUCHED,), ()),
        (Session(FAILS, {DK.check: (failing(OUT), PASSES)}), (TOUCHED,), ()),
        (Session(FAILS, {DK.check: ()}), (TOUCHED,), ()),
        (Session(FAILS, {DK.check: (Verdict(check=DK.check, status=Status.ERROR),)}), (TOUCHED,), ()),
        (Session({TOUCHED.check: FAILS[TOUCHED.check]}, {}), (TOUCHED,), ()),
        (Session(FAILS, {}, there=False), (), ()),
    ],
)
def test_a_finding_is_made_right_where_it_fails_as_before_and_passes_with_the_repair(session, right, wrong):
    records = [FindingRecord(key, "fv1", "fv1", failing(key), "cpu", "k") for key in (OUT, DK, TOUCHED)]
    cause = msgspec.structs.replace(records[0], diagnosis=msgspec.structs.replace(LOOK, repairs=(REPAIR,)))

    retry(session, Retry(cause, tuple(records[1:]), 20.0))

    assert [each for each in session.events if isinstance(each, Retried)] == [Retried(OUT, right, wrong)]


@pytest.mark.parametrize(
    ("session", "why", "told"),
    [
        (Session(FAILS, {}), "its repair makes this right too", True),
        (Session(FAILS, FAILS), "", True),
        (Session(FAILS, {}, there=False), "by other trials", True),
    ],
)
def test_the_repair_of_a_cause_says_whether_a_failure_is_its_work_before_other_trials_do(
    session, why, told, monkeypatch
):
    monkeypatch.setattr(Replays, "why", lambda self, sighting: "by other trials")
    record = FindingRecord(OUT, "fv1", "fv1", failing(OUT), "cpu", "k")
    cause = msgspec.structs.replace(record, diagnosis=msgspec.structs.replace(LOOK, repairs=(REPAIR,)))

    attribute(session, Attribute(cause, (Sighting(DK, "fv1 seq_q=9", failing(DK)),), 20.0, trials=True))

    answers = [each for each in session.events if isinstance(each, Attributed)]
    assert [(each.why, each.told) for each in answers] == [(why, told)]

"""Two findings that nothing tells apart are put to an experiment before they are one: a name, and cases without what the other needs."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.protocol import Minimal, Separate, Separated
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.worker.separate import separate
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats
from tests.campaign.company_seen import DK, OUT, book, failing

NAN = Key("k", "nonfinite", "nan", "o", "fp16")
NAMED = Diagnosis("scale-missing", "It is wrong.")
BOTH = "fv1 causal=top-left softcap=2"


class Subject:
    """A session whose subject makes O wrong with a causal mask, and not finite where `lost` holds of a case."""

    def __init__(self, lost, says=None):
        self.toolkit, self.lost, self.says, self.events = self, lost, says, []

    def subject(self, spec):
        return spec

    def refusal(self, subject, case):
        return None

    def attributed(self, subject, case, verdict, diagnosis):
        assert (verdict.output, verdict.check, diagnosis.name) == ("o", "nonfinite", "scale-missing")
        return self.says

    def emit(self, event):
        self.events.append(event)

    def judge(self, spec, case, plan):
        keys = [OUT] * bool(case.mask.causal) + [NAN] * self.lost(case)
        return CaseResult(format_case(case), "k", "cpu", tuple(map(failing, keys)), (OutputStats("o", "", 4),))


def separated(session, cause=BOTH, found=BOTH, diagnosis=None, **verdict):
    records = [FindingRecord(key, case, case, failing(key), "cpu", "k") for key, case in ((OUT, cause), (NAN, found))]
    changes = {"diagnosis": diagnosis, "verdict": msgspec.structs.replace(failing(OUT), **verdict)}
    separate(session, Separate(msgspec.structs.replace(records[0], **changes), records[1]))
    return next(event for event in session.events if isinstance(event, Separated))


def test_a_case_without_what_the_other_finding_needs_is_looked_for_both_ways():
    event = separated(Subject(lambda case: case.logits.softcap is not None))

    assert parse_case(event.found_alone).mask.causal is None
    assert parse_case(event.cause_alone).logits.softcap is None
    together = separated(Subject(lambda case: case.logits.softcap is not None and case.mask.causal is not None))
    assert (together.found_alone, bool(together.cause_alone)) == ("", True)


def test_a_small_error_in_16_bits_is_left_out_by_fp32():
    plain = "fv1 seq_q=3"
    event = separated(Subject(lambda case: True), cause=plain, found=plain, ratio=(2.0).hex())

    assert event.found_alone == "fv1 seq_q=3 dtype=fp32"


@pytest.mark.parametrize("says", [True, False, None])
def test_the_name_of_the_one_is_asked_about_the_case_of_the_other(says):
    event = separated(Subject(lambda case: True, says), diagnosis=NAMED)

    assert event.accounts is says
    assert bool(event.found_alone) is (says is not True), "what a name accounts for is one finding"


def test_an_experiment_that_fails_says_nothing():
    class Broken(Subject):
        def judge(self, spec, case, plan):
            raise RuntimeError("broken")

    assert separated(Broken(None)) == Separated(OUT, NAN)


def waiting(**changes):
    """Two explained findings of one output that nothing tells apart."""
    causes, records = book(Company(), OUT, NAN)
    for key in (OUT, NAN):
        causes.explained(key)
        records[key] = msgspec.structs.replace(records[key], case=BOTH, confirmation=Confirmation(3, 3), **changes)
    return causes, records


def test_what_an_experiment_shows_both_ways_tells_two_findings_apart():
    causes, _ = waiting()
    (lead, found) = causes.remaining.undecided("k", explained=True)
    causes.remaining.separations.began(lead.key, found.key)
    assert causes.remaining.undecided("k", explained=True) is None, "it was begun"
    assert [why for *_, why in causes.remaining.folds()] == [
        "not told apart: no experiment was possible within the time"
    ]

    for found_alone, cause_alone, stays in (("fv1", "", False), ("", "fv1", False), ("fv1", "fv1", True)):
        causes.remaining.separations.add(Separated(lead.key, found.key, None, found_alone, cause_alone))
        left = [why for *_, why in causes.remaining.folds()]
        assert left == [] if stays else left == ["nothing shows that it has a cause of its own, experiments neither"]


def test_a_finding_that_was_not_explained_is_put_to_an_experiment_last():
    causes, records = waiting()
    causes.forget(NAN)

    assert causes.remaining.undecided("k", explained=True) is None
    assert causes.remaining.undecided("k", explained=False) == (records[OUT], records[NAN])


def test_a_name_that_had_no_say_and_then_does_not_account_for_the_minimal_case_tells_another_output_apart():
    causes, _ = book(Company(), OUT, DK, diagnosis=NAMED)
    causes.explained(OUT)
    causes.answer(OUT, causes.sighting(DK), "", told=False)
    assert [key for key, *_ in causes.remaining.folds()] == [DK], "it had no say"

    causes.remaining.separations.add(Separated(OUT, DK, False))
    assert list(causes.remaining.folds()) == []


@pytest.mark.parametrize("accounts", [True, None])
def test_the_explainer_has_one_experiment_made_when_the_search_is_over(tmp_path, accounts):
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=1)
    ledger, session = Ledger(config), Subject(lambda case: True)
    explainer = Explainer(
        config, ledger, Explaining(Budget(None, 10.0), 1, share=0.3, least=None), lambda event: None, lambda: 0.0
    )
    ledger.keep(session.judge("k", parse_case(BOTH), "fuzz"), "k", 0.0)
    for key in (OUT, NAN):
        explainer.told(0, Minimal(key, BOTH, failing(key), Confirmation(3, 3)))
    explainer._folding.unprofiled.clear()
    task = explainer.next(searching=False)

    assert isinstance(task, Separate)
    assert (task.cause.key, task.found.key) == (OUT, NAN)
    explainer.began(0, task)
    explainer.told(0, Separated(OUT, NAN, accounts))
    explainer.ended(0)
    assert len(ledger.tally.findings()) == (1 if accounts else 2)
    assert not isinstance(explainer.next(searching=False), Separate)
    explainer.end()
    (record,) = ledger.tally.findings()
    assert [each.why for each in record.folded] == [
        "the same diagnosis" if accounts else "nothing shows that it has a cause of its own, experiments neither"
    ]
    ledger.store.close()


def asked_of_a_name(conditions, output, says):
    """What is said where no more than a name is asked, which is about O and accounts for a failure where `says` holds of its conditions."""
    key = msgspec.structs.replace(NAN, output=output)

    class Asked(Subject):
        def attributed(self, subject, case, verdict, diagnosis):
            return says(diagnosis.conditions)

        def judge(self, spec, case, plan):
            return CaseResult(format_case(case), "k", "cpu", (failing(key),))

    session, diagnosis = Asked(lambda case: True), msgspec.structs.replace(NAMED, conditions=conditions)
    lead, found = (FindingRecord(each, BOTH, BOTH, failing(each), "cpu", "k") for each in (OUT, key))
    separate(session, Separate(msgspec.structs.replace(lead, diagnosis=diagnosis), found, only_name=True))
    event = next(event for event in session.events if isinstance(event, Separated))
    assert (event.only_name, event.found_alone, event.cause_alone) == (True, "", "")
    return event.accounts, event.wider


@pytest.mark.parametrize(
    ("conditions", "output", "says", "answer"),
    [
        ((), "o", lambda conditions: True, (True, False)),
        ((), "o", lambda conditions: False, (False, False)),
        (("seq_q > 4",), "o", lambda conditions: not conditions, (True, True)),
        (("seq_q > 4",), "lse", lambda conditions: not conditions, (True, True)),
        (("seq_q > 4",), "o", lambda conditions: False, (False, False)),
        (("seq_q > 4",), "dk", lambda conditions: not conditions, (False, False)),
    ],
)
def test_one_name_of_one_kernel_is_one_mistake_whatever_its_conditions_are(conditions, output, says, answer):
    assert asked_of_a_name(conditions, output, says) == answer


def explainer_of(tmp_path, cases, told):
    """An explainer that was told of two findings, by key the minimal case, and the ledger."""
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=1)
    ledger, session = Ledger(config), Subject(lambda case: True)
    explainer = Explainer(
        config, ledger, Explaining(Budget(None, 10.0), 1, share=0.3, least=None), lambda event: None, lambda: 0.0
    )
    ledger.keep(session.judge("k", parse_case(BOTH), "fuzz"), "k", 0.0)
    for key, case in cases.items():
        explainer.told(0, Minimal(key, case, failing(key), Confirmation(3, 3), told.get(key)))
    explainer._folding.unprofiled.clear()
    return explainer, ledger


@pytest.mark.parametrize("wider", [True, False])
def test_a_name_that_comes_late_is_asked_about_what_was_explained_before_it_whatever_tells_them_apart(tmp_path, wider):
    cases = {NAN: "fv1 causal=top-left", OUT: "fv1 softcap=2"}
    named = msgspec.structs.replace(NAMED, conditions=("seq_q > 4",))
    explainer, ledger = explainer_of(tmp_path, cases, {OUT: named})
    task = explainer.next(searching=True)

    assert isinstance(task, Separate)
    assert (task.cause.key, task.found.key, task.only_name) == (OUT, NAN, True)
    explainer.began(0, task)
    explainer.told(0, Separated(OUT, NAN, True, only_name=True, wider=wider))
    explainer.ended(0)
    (record,) = ledger.tally.findings()
    assert record.diagnosis.conditions == (() if wider else ("seq_q > 4",))
    assert ("Not there alone: o of fp16" in record.diagnosis.sentence) is wider
    ledger.store.close()


def test_a_name_that_does_not_account_for_it_is_not_asked_again_and_tells_nothing_apart(tmp_path):
    explainer, ledger = explainer_of(tmp_path, dict.fromkeys((NAN, OUT), BOTH), {OUT: NAMED})
    task = explainer.next(searching=False)
    explainer.began(0, task)
    explainer.told(0, Separated(OUT, NAN, False, only_name=True))
    explainer.ended(0)
    again = explainer.next(searching=False)

    assert isinstance(again, Separate)
    assert not again.only_name
    ledger.store.close()

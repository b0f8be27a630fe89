"""A finding that was folded is none any more: what was to be done about it, and what a worker still says of it, ends no campaign."""

import msgspec
import pytest

from flashverify.campaign.protocol import Attribute, Attributed, Compare, Compared, Improved, Minimal, Minimise, Profile
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.judge.record import Confirmation, Diagnosis
from flashverify.judge.verdict import CaseResult, OutputStats
from tests.campaign.company_seen import DK, OUT, TOUCHED, failing

READ = msgspec.structs.replace(TOUCHED, check="sanitizer", error="read")
CASE, SMALL = "fv1 seq_q=8 seq_k=8 heads_q=2", "fv1"


def result(*keys):
    return CaseResult(CASE, "k", "cpu", tuple(map(failing, keys)), (OutputStats("o", "end-to-end", 4),))


@pytest.fixture
def campaign(tmp_path):
    """Two findings that were minimised, and that nobody profiled."""
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=2)
    ledger, events = Ledger(config), []
    time = Explaining(Budget(None, 10.0), 2, share=0.9, least=None)
    explainer = Explainer(config, ledger, time, events.append, lambda: 0.0)
    ledger.keep(result(OUT, READ), "k", 0.0)
    for key in (OUT, READ):
        explainer.told(0, Minimal(key, SMALL, failing(key), Confirmation(3, 3)))
    yield ledger, explainer
    ledger.store.close()


def test_a_finding_that_was_folded_before_it_was_profiled_is_not_profiled_when_the_next_failure_waits(campaign):
    ledger, explainer = campaign
    task = explainer.next(searching=True)
    assert isinstance(task, Compare), "nothing waits, so that no profile is made"
    explainer.began(0, task)
    explainer.told(0, Compared(OUT, READ, "gone with it"))
    explainer.ended(0)
    ledger.keep(result(OUT, READ, TOUCHED), "k", 1.0)
    profiled = []
    while isinstance(task := explainer.next(searching=True), Profile):
        profiled.append(task.cause.key)
        explainer.began(0, task)
        explainer.ended(0)

    assert profiled == [OUT]
    assert isinstance(task, Attribute)


@pytest.mark.parametrize("says", ["improved", "minimal", "lost", "profile lost"])
def test_what_a_worker_says_of_a_finding_that_was_folded_meanwhile_changes_nothing(campaign, says):
    ledger, explainer = campaign
    record = ledger.tally.records[READ]
    shrink = Minimise("k", READ, CASE, CASE, failing(READ), 1.0, 3, (), None)
    explainer.began(1, Profile(record, None) if says == "profile lost" else shrink)
    explainer._folding.one(READ, OUT, "gone with it")
    if says == "improved":
        explainer.told(1, Improved(READ, SMALL, failing(READ)))
    elif says == "minimal":
        explainer.told(1, Minimal(READ, SMALL, failing(READ), Confirmation(3, 3)))
    if "lost" in says:
        explainer.lost(1, blamed=False)
    else:
        explainer.ended(1)

    assert list(ledger.tally.records) == [OUT]
    assert not explainer._book.is_known(READ)
    assert READ not in explainer._folding.unprofiled


def test_a_failure_of_a_cause_that_was_folded_meanwhile_goes_to_the_finding_that_holds_it(campaign):
    ledger, explainer = campaign
    ledger.keep(result(OUT, READ, TOUCHED), "k", 1.0)
    explainer._folding.unprofiled.clear()
    asked = explainer._book.sighting(TOUCHED)
    explainer.began(1, Attribute(ledger.tally.records[READ], (asked,), None))
    explainer._folding.one(READ, OUT, "gone with it")
    explainer.told(1, Attributed(READ, asked, "its values"))
    explainer.ended(1)

    (record,) = ledger.tally.findings()
    assert {each.key for each in record.folded} == {READ, TOUCHED}
    explainer._folding.one(OUT, READ, "itself")
    assert list(ledger.tally.records) == [OUT]


def test_a_diagnosis_that_was_told_is_stored_though_nothing_more_comes(campaign):
    ledger, explainer = campaign
    explainer.told(1, Improved(OUT, SMALL, failing(OUT), Diagnosis("causal-ignored")))

    assert ledger.tally.records[OUT].diagnosis == Diagnosis("causal-ignored")


@pytest.mark.parametrize("beside", [(), ("dk",)])
def test_a_failure_that_the_diagnosis_of_a_finding_calls_the_work_of_another_cause_is_never_folded_into_it(
    campaign, beside
):
    ledger, explainer = campaign
    ledger.keep(result(DK), "k", 1.0)
    ledger.renamed(OUT, Diagnosis("not-normalised", "It is.", beside=beside))
    explainer._folding.one(DK, OUT, "comes and goes with it")

    assert (DK in ledger.tally.records) is bool(beside)

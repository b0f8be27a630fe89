"""A second cause hides behind a bucket whose cause is known: it is looked for first where that cause cannot be seen."""

import msgspec
import pytest

from flashverify.campaign.causes.independence import is_silent
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute, Attributed, Minimal, Minimise
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, OutputStats
from tests.campaign.company_seen import DK, OUT, TOUCHED, failing

MODES = ("end-to-end", "conditional")
CAUSAL, PLAIN = "fv1 causal=top-left softcap=3", "fv1 softcap=3"
NAMED = Diagnosis("causal-ignored", "It is ignored.")
CAUSE = FindingRecord(
    OUT, "fv1 causal=top-left backward=no", CAUSAL, failing(OUT), "cpu", "k", Confirmation(3, 3), diagnosis=NAMED
)


@pytest.mark.parametrize(
    ("case", "failures", "changes", "silent"),
    [
        (PLAIN, (DK, OUT), {}, True),
        (CAUSAL, (DK, OUT), {}, False),
        (CAUSAL, (DK,), {}, True),
        (CAUSAL, (DK,), {"key": TOUCHED}, False),
        (PLAIN, (DK, OUT), {"not_minimal": "late"}, False),
        (PLAIN, (DK, OUT), {"diagnosis": None}, False),
    ],
    ids=["no mask", "both", "right O", "not about O", "not minimal", "no name"],
)
def test_a_cause_with_a_name_is_silent_where_what_it_needs_is_not_there_or_o_is_right(case, failures, changes, silent):
    seen = Sighting(DK, case, failing(DK), tuple(map(failing, failures)))

    assert is_silent(msgspec.structs.replace(CAUSE, **changes), seen) is silent
    assert not is_silent(CAUSE, msgspec.structs.replace(seen, key=TOUCHED)), "it is not about values"


def result(case, *keys):
    stats = tuple(OutputStats(output, mode, 4) for output in ("o", "dk") for mode in MODES)
    verdicts = [msgspec.structs.replace(failing(key), mode=mode) for key in keys for mode in MODES]
    return CaseResult(case, "k", "cpu", tuple(verdicts), stats)


@pytest.fixture
def campaign(tmp_path):
    """A ledger and an explainer that know a cause of wrong O; dK was folded into it, and O is right on another case of dK; a bucket waits."""
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=1)
    ledger = Ledger(config)
    time = Explaining(Budget(None, 10.0), 1, share=0.3, least=None)
    explainer = Explainer(config, ledger, time, lambda event: None, lambda: 0.0)
    ledger.keep(result(CAUSAL, OUT, DK), "k", 0.0)
    explainer.told(0, Minimal(OUT, CAUSE.case, failing(OUT), Confirmation(3, 3), NAMED))
    explainer._folding.unprofiled.clear()
    explainer._folding.one(DK, OUT, "the same diagnosis")
    ledger.keep(result(PLAIN, DK, TOUCHED), "k", 1.0)
    yield ledger, explainer
    ledger.store.close()


def denied(explainer):
    """What is asked before anything is run again in other ways, after the bucket that waits was asked about once; the cause denies it."""
    task = explainer.next(searching=True)
    assert [sighting.key for sighting in task.asked] == [TOUCHED]
    explainer.began(0, task)
    explainer.ended(0)
    task = explainer.next(searching=True)
    assert isinstance(task, Attribute)
    assert [(sighting.key, sighting.case) for sighting in task.asked] == [(DK, PLAIN)]
    explainer.began(0, task)
    explainer.told(0, Attributed(OUT, task.asked[0], ""))
    explainer.ended(0)


def test_what_a_silent_cause_does_not_account_for_is_minimised_before_what_waits(campaign):
    ledger, explainer = campaign
    denied(explainer)
    explainer._book._asked |= {(OUT, TOUCHED, PLAIN)}
    task = explainer.next(searching=True)

    assert isinstance(task, Minimise)
    assert (task.key, task.case) == (msgspec.structs.replace(DK, cause=1), PLAIN)
    explainer.told(0, Minimal(task.key, PLAIN, failing(DK), Confirmation(), Diagnosis("softcap-slope-missing")))
    assert task.key in ledger.tally.records, "nobody had time to verify it"


def test_it_fails_again_or_is_no_finding(campaign):
    ledger, explainer = campaign
    denied(explainer)
    second = msgspec.structs.replace(DK, cause=1)
    explainer.told(0, Minimal(second, PLAIN, failing(DK), Confirmation(3, 0)))

    assert second not in ledger.tally.records
    explainer.end()
    assert second not in ledger.tally.records


def test_it_is_a_finding_where_there_was_no_time_to_minimise_it(campaign):
    ledger, explainer = campaign
    denied(explainer)
    explainer.end()

    assert msgspec.structs.replace(DK, cause=1) in ledger.tally.records

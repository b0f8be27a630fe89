"""Explained findings are compared with each other: what takes away the one has to take away the other."""

import msgspec
import pytest

from flashverify.campaign.causes.agreement import Agreement
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Compare, Compared, Minimal
from flashverify.campaign.supervisor.budget import Budget, Explaining
from flashverify.campaign.supervisor.explainer import Explainer
from flashverify.campaign.supervisor.ledger import Ledger
from flashverify.campaign.supervisor.schedule import CampaignConfig
from flashverify.campaign.worker.compare import compare
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict
from tests.campaign.company_seen import DK, OUT, book, failing, seen

READ = Key("k", "sanitizer", "out-of-bounds", "k_view", "fp16")
SMALL = {"ratio": (1.5).hex()}
CASE = "fv1 batch=2 heads_q=4 heads_kv=2 seq_q=70 seq_k=70 causal=top-left sink=yes backward=no"


@pytest.mark.parametrize(
    ("counts", "one"),
    [
        ((6, 0, 0, 2), True),
        ((5, 1, 0, 4), True),
        ((6, 0, 0, 1), False),
        ((2, 0, 0, 2), False),
        ((6, 0, 1, 3), False),
        ((2, 5, 0, 3), False),
        ((20, 0, 0, 0), False),
    ],
    ids=["agree", "agree mostly", "gone once", "few", "alone once", "goes too easily", "never gone"],
)
def test_two_failures_agree_if_the_second_is_gone_wherever_the_first_is_and_chance_does_not_explain_it(counts, one):
    assert bool(Agreement(*counts, {"rows", "keys"}).words) is one
    assert not Agreement(*counts, {"rows"}).words, "two defects of one feature are both gone without it"


class Changed:
    """A session whose subject makes O wrong where `wrong` holds of a case, and reads outside where `outside` does."""

    def __init__(self, wrong, outside):
        self.toolkit, self.wrong, self.outside, self.events, self.told = self, wrong, outside, [], {}

    def subject(self, spec):
        return spec

    def refusal(self, subject, case):
        return None

    def emit(self, event):
        self.events.append(event)

    def judge(self, spec, case, plan):
        keys = [OUT] * self.wrong(case) + [READ] * self.outside(case)
        passed = tuple(Verdict(check=check, status=Status.PASS) for check in ("accuracy", "sanitizer"))
        stats = (OutputStats("o", "end-to-end", 4),)
        return CaseResult(format_case(case), "k", "cpu", (*map(failing, keys), *passed), stats)


def compared(wrong, outside, alone=(CASE,), **changes):
    session = Changed(wrong, outside)
    own, other = (msgspec.structs.replace(failing(key), **changes) for key in (OUT, READ))
    cause = FindingRecord(OUT, "fv1", "fv1", own, "cpu", "k")
    compare(session, Compare(cause, (Sighting(READ, CASE, other, (other,), alone=alone),)))
    (event,) = session.events
    assert (event.cause, event.found) == (OUT, READ)
    return event


def ragged(case):
    return case.seq_k % 64 != 0 and case.mask.causal is not None


def test_what_is_gone_with_the_wrong_values_has_their_cause():
    found = compared(ragged, lambda case: ragged(case) and case.heads_q > 1)

    assert found.why.startswith("gone with it on ")
    assert not found.at_work
    assert compared(ragged, ragged, **SMALL).why == "", "which case shows a small error is chance"


@pytest.mark.parametrize("outside", [lambda case: True, lambda case: case.heads_q > 1, lambda case: case.logits.sink])
def test_what_stays_where_the_values_are_right_has_a_cause_of_its_own(outside):
    assert compared(ragged, outside).why == ""


def test_nothing_is_said_where_the_values_are_always_wrong():
    assert compared(lambda case: True, ragged).why == ""


def test_a_cause_is_at_work_where_it_shows_on_every_case_on_which_the_other_was_alone():
    def wrong(case):
        return case.values.regime != "zeros" and case.seq_k != 5

    def outside(case):
        return True

    assert compared(wrong, outside, ("fv1 seq_k=70 regime=zeros",)).at_work
    assert not compared(wrong, outside, ("fv1 seq_k=70 regime=zeros", "fv1 seq_k=5 tree=-1,0,1,2")).at_work


def pair(company=None, *keys, **changes):
    causes, records = book(company or Company(), *keys)
    for key in keys:
        records[key] = msgspec.structs.replace(
            records[key], confirmation=Confirmation(3, 3), **changes.get(key.output, {})
        )
        causes.explained(key)
    return causes


def test_explained_findings_are_compared_once_the_clearer_one_first():
    causes = pair(None, READ, OUT)
    lead, sighting = causes.pair("k")

    assert (lead.key, sighting.key, sighting.alone) == (OUT, READ, ("fv1",))
    assert causes.pair("k") == (lead, sighting), "nobody began"
    causes.pairs.began(OUT, READ)
    assert causes.pair("k") is None


@pytest.mark.parametrize(
    ("keys", "changes"),
    [
        ((OUT, DK), {"dk": {"diagnosis": Diagnosis("delta-missing")}}),
        ((OUT, DK), {"o": {"diagnosis": Diagnosis("scale-missing")}}),
        ((OUT, Key("k", "exception", "exception", "ValueError", "fp16")), {}),
        ((DK, Key("k", "accuracy", "empty-row", "o", "fp16")), {}),
    ],
    ids=["named", "told by a name", "exception", "gradient before O"],
)
def test_findings_that_a_comparison_cannot_join_are_not_compared(keys, changes):
    assert pair(None, *keys, **changes).pair("k") is None


def test_what_was_never_seen_where_a_cause_is_not_at_work_is_one_with_it_after_they_were_compared():
    company = Company()
    seen(company, "fv1", OUT, READ, times=6)
    seen(company, "fv1", times=9)
    causes = pair(company, OUT, READ)
    once = Company()
    seen(once, "fv1", OUT, READ, times=3)
    seen(once, "fv1", OUT, times=9)
    usual = pair(once, OUT, READ)
    for each in (causes, usual):
        each.compared(OUT, READ)

    assert next(causes.needed())[:2] == (READ, OUT)
    assert next(pair(company, OUT, READ).needed(), None) is None, (
        "nobody looked whether the cause is at work on its minimal case"
    )
    assert next(usual.needed(), None) is None


@pytest.mark.parametrize(
    ("check", "output", "usual", "folded"),
    [
        ("reuse", "o", False, True),
        ("determinism", "o", False, True),
        ("reuse", "o", True, False),
        ("reuse", "dk", False, False),
        ("relations", "o", False, False),
    ],
)
def test_bits_that_differ_only_where_the_values_are_wrong_repeat_that(check, output, usual, folded):
    """Unless the values are wrong nearly everywhere, so that chance explains it."""
    bits, company = Key("k", check, "calls", output, "fp16"), Company()
    seen(company, "fv1 heads_q=2", OUT, bits, times=4)
    seen(company, "fv1 heads_q=3", *([OUT] if usual else []), times=10)
    causes, records = book(company, OUT, bits)
    for key in (OUT, bits):
        causes.explained(key)
        records[key] = msgspec.structs.replace(records[key], confirmation=Confirmation(3, 3))

    assert next(causes.needed(), ("", ""))[:2] == ((bits, OUT) if folded else ("", ""))


def test_two_defects_of_one_part_stay_two():
    def causal(case):
        return case.mask.causal is not None

    assert compared(causal, lambda case: causal(case) and case.heads_q > 1).why == ""


def test_the_explainer_hands_a_pair_out_once_when_nothing_waits_and_folds_what_is_one(tmp_path):
    config = CampaignConfig(kind="fuzz", subjects=("k",), out=tmp_path / "run", device="cpu", workers=1)
    ledger = Ledger(config)
    explainer = Explainer(
        config, ledger, Explaining(Budget(None, 10.0), 1, share=0.3, least=None), lambda event: None, lambda: 0.0
    )
    ledger.keep(Changed(ragged, ragged).judge("k", parse_case(CASE), "fuzz"), "k", 0.0)
    explainer.told(0, Minimal(READ, "fv1 heads_q=2", failing(READ), Confirmation(3, 3)))
    assert not isinstance(explainer.next(searching=True), Compare), "a failure waits"
    explainer.told(0, Minimal(OUT, "fv1", failing(OUT), Confirmation(3, 3)))
    task = explainer.next(searching=True)

    assert (task.cause.key, task.asked[0].key, task.asked[0].case) == (OUT, READ, CASE)
    assert explainer.waits(searching=True)
    explainer.began(0, task)
    assert not explainer.waits(searching=False)
    explainer.told(0, Compared(OUT, READ, "gone with it"))
    explainer.ended(0)
    (record,) = ledger.tally.findings()
    assert (record.key, [each.why for each in record.folded]) == (OUT, ["gone with it"])
    ledger.store.close()


def test_what_only_follows_on_its_minimal_case_goes_to_the_finding_with_the_wrong_o():
    """The gradient is wrong given O and LSE too on the case that showed it first, and right given them on its minimal case."""

    class Following(Changed):
        def judge(self, spec, case, plan):
            verdicts = [failing(OUT), msgspec.structs.replace(failing(DK), mode="end-to-end")]
            verdicts += [msgspec.structs.replace(failing(DK), mode="conditional")] * (case.seq_k > self.most)
            stats = tuple(OutputStats(name, mode, 4) for name in ("o", "dk") for mode in ("end-to-end", "conditional"))
            return CaseResult(format_case(case), "k", "cpu", tuple(verdicts), stats)

    for most, why in ((3, "follows from the wrong O"), (0, "")):
        session = Following(ragged, ragged)
        session.most = most
        cause = FindingRecord(OUT, "fv1", "fv1", failing(OUT), "cpu", "k")
        verdicts = session.judge("k", parse_case("fv1 seq_k=9"), "fuzz").failures
        compare(
            session, Compare(cause, (Sighting(DK, "fv1 seq_k=9", failing(DK), verdicts, ("dk",), ("fv1 seq_k=2",)),))
        )
        assert [event.why for event in session.events] == [why]

"""A gradient that only follows from a wrong O on one case may be wrong in its own right on another, and has a cause of its own there."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.causes.sighting import may_follow, sightings_of
from flashverify.campaign.protocol import Attribute, Attributed, Minimal, Minimise, Profile, Shown
from flashverify.campaign.supervisor.tally import Tally
from flashverify.campaign.worker.attribute import attribute
from flashverify.campaign.worker.minimise import minimise
from flashverify.campaign.worker.profile import profile
from flashverify.case.text import format_case
from flashverify.judge.record import Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats
from tests.campaign.company_seen import DK, OUT, book, failing
from tests.campaign.test_minimise_known import Session

BOTH, GIVEN, END = ("end-to-end", "conditional"), ("conditional",), ("end-to-end",)
SMALL, LARGE = "fv1 seq_q=2 seq_k=2", "fv1 seq_q=8 seq_k=8"


def result(case, modes, *, wrong_o=True):
    """O is wrong, and dK in these modes."""
    verdicts = [failing(OUT)] * wrong_o + [msgspec.structs.replace(failing(DK), mode=mode) for mode in modes]
    stats = tuple(OutputStats(name, mode, 4) for name in ("o", "dk") for mode in BOTH)
    return CaseResult(case, "k", "cpu", tuple(verdicts), stats)


def sighting(modes, **changes):
    return sightings_of(result(SMALL, modes, **changes))[DK]


@pytest.mark.parametrize(
    ("modes", "wrong_o", "follows"),
    [(BOTH, True, False), (GIVEN, True, True), (END, True, True), (END, False, False)],
)
def test_a_gradient_follows_at_most_where_o_is_wrong_and_it_is_not_wrong_in_both_ways(modes, wrong_o, follows):
    found = sightings_of(result(SMALL, modes, wrong_o=wrong_o))

    assert may_follow(found[DK]) is follows
    assert OUT not in found or not may_follow(found[OUT])


def test_a_bucket_is_known_by_a_case_on_which_it_is_wrong_in_its_own_right():
    tally = Tally()
    tally.add(result(SMALL, END), "k", 1.0)
    assert tally.records[DK].case == SMALL
    tally.add(result(LARGE, BOTH), "k", 2.0)
    assert tally.records[DK].case == LARGE
    tally.add(result(SMALL, GIVEN), "k", 3.0)
    assert tally.records[DK].case == LARGE, "though another one is smaller"


@pytest.mark.parametrize("modes", [END, BOTH])
def test_a_bucket_that_was_folded_where_it_follows_waits_again_once_it_does_not(modes):
    tally = Tally()
    tally.add(result(SMALL, modes), "k", 1.0)
    tally.fold(DK, OUT, "follows from the wrong O")
    assert tally.add(result(LARGE, GIVEN), "k", 2.0) == []
    changed = tally.add(result(LARGE, BOTH), "k", 3.0)

    if modes == BOTH:
        assert (changed, tally.owners) == ([], {DK: OUT})
        return
    assert [record.key for record in changed] == [OUT, DK]
    assert (tally.owners, tally.records[OUT].folded, tally.records[DK].case) == ({}, (), LARGE)
    tally.fold(DK, OUT, "the same diagnosis")
    assert tally.add(result(SMALL, BOTH), "k", 4.0) == [], "it was asked about by such a case"


@pytest.mark.parametrize(("modes", "follows", "goes"), [(END, True, True), (BOTH, True, False), (BOTH, False, True)])
def test_a_minimal_case_on_which_a_gradient_follows_says_nothing_of_one_that_is_wrong_in_its_own_right(
    modes, follows, goes
):
    causes, _ = book(Company(), OUT, DK)
    causes._seen.lead(sighting(modes))
    beside = ShownBeside(causes, {})
    beside.add(Shown(OUT, (DK,), "shown", follows=follows))

    assert bool(list(beside.folds())) is goes
    beside.add(Shown(OUT, (DK,), "shown on another case"))
    assert list(beside.folds()) == [(DK, OUT, "shown on another case" if follows else "shown")]


@pytest.mark.parametrize("own", [True, False])
def test_such_a_gradient_is_not_minimised_to_a_case_on_which_it_follows(own):
    class Following(Session):
        def judge(self, spec, case, plan):
            return result(format_case(case), BOTH if case.mask.causal else END)

        def attributed(self, subject, case, verdict, diagnosis):
            return None

    session = Following()
    text = "fv1 seq_q=4 seq_k=4 causal=top-left softcap=2"
    verdict = msgspec.structs.replace(failing(DK), mode=BOTH[0])
    minimise(session, Minimise("k", DK, text, text, verdict, 5.0, 0, known=(Diagnosis("a"),), own=own))
    (found,) = [event for event in session.events if isinstance(event, Minimal)]

    assert ("causal" in found.case) is own


def test_a_key_of_another_check_never_follows():
    key = Key("k", "determinism", "repeat", "dk", "fp16")

    assert not may_follow(msgspec.structs.replace(sighting(END), key=key))


@pytest.mark.parametrize(("modes", "why"), [(END, "the same diagnosis on a simpler case"), (BOTH, "")])
def test_a_simpler_case_on_which_it_follows_says_nothing_of_one_on_which_it_does_not(modes, why):
    """A name accounts for the gradient without a causal mask, where it is right given O and LSE."""

    class Named(Session):
        def refusal(self, subject, case):
            return None

        def judge(self, spec, case, plan):
            return result(format_case(case), modes if case.mask.causal else END)

        def attributed(self, subject, case, verdict, diagnosis):
            return verdict.output == "dk" and case.mask.causal is None

    session, text = Named(), "fv1 seq_q=4 seq_k=4 causal=top-left"
    session.told = {}
    cause = FindingRecord(OUT, SMALL, SMALL, failing(OUT), "cpu", "k", diagnosis=Diagnosis("scale-missing"))
    asked = sightings_of(result(text, modes))[DK]
    attribute(session, Attribute(cause, (asked,)))
    (event,) = [event for event in session.events if isinstance(event, Attributed)]

    assert event.why == why


@pytest.mark.parametrize(("fails", "why"), [(True, "the same diagnosis without the edited values"), (False, "")])
def test_edited_values_that_a_name_says_nothing_of_hide_no_failure_that_it_accounts_for(fails, why):
    class Named(Session):
        def refusal(self, subject, case):
            return None

        def judge(self, spec, case, plan):
            return result(format_case(case), BOTH if fails or case.values.edits else ())

        def attributed(self, subject, case, verdict, diagnosis):
            return verdict.output == "dk" and not case.values.edits

    session = Named()
    session.told = {}
    parts = "causal=top-left window=2,1 klen=4,3 softcap=2 alibi=yes sink=yes bias=full dropout=0.25"
    text = f"fv1 batch=2 heads_q=4 heads_kv=2 seq_q=4 seq_k=4 {parts} edits=do:0,0,0,0:inf"
    cause = FindingRecord(OUT, SMALL, SMALL, failing(OUT), "cpu", "k", diagnosis=Diagnosis("scale-missing"))
    attribute(session, Attribute(cause, (sightings_of(result(text, BOTH))[DK],)))
    (event,) = [event for event in session.events if isinstance(event, Attributed)]

    assert event.why == why


def test_what_a_minimal_case_shows_is_said_once_where_it_follows_and_once_where_it_does_not():
    class Both(Session):
        def refusal(self, subject, case):
            return None

        def judge(self, spec, case, plan):
            return result(format_case(case), BOTH if case.seq_q > 2 else END if case.grad.backward else ())

    session = Both()
    profile(session, Profile(FindingRecord(OUT, f"{SMALL} backward=no", SMALL, failing(OUT), "cpu", "k")))
    said = [(event.why, event.follows) for event in session.events if isinstance(event, Shown) and DK in event.buckets]

    assert said == [
        ("follows from the wrong O", True),
        ("its minimal case with more rows and keys shows it too", False),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "fv1 seq_q=4 seq_k=4 softcap=2 bias=full heads_q=3 heads_kv=3",
            "the same diagnosis without the parts that it does not need",
        ),
        ("fv1 seq_q=4 seq_k=4 bias=full heads_q=3 heads_kv=3", ""),
    ],
)
def test_a_cause_that_needs_a_modifier_is_asked_about_a_case_without_the_others(text, why):
    """A name accounts for the gradient with a bias and without a softcap, where there are several heads: another cause is at work with the softcap."""

    class Named(Session):
        def refusal(self, subject, case):
            return None

        def judge(self, spec, case, plan):
            fails = case.logits.bias is not None and case.heads_q > 1
            return result(format_case(case), BOTH) if fails else CaseResult(format_case(case), "k", "cpu", ())

        def attributed(self, subject, case, verdict, diagnosis):
            return verdict.output == "dk" and case.logits.softcap is None and "softcap" in text

    session, small = Named(), "fv1 seq_q=2 seq_k=2 bias=full"
    session.told = {}
    cause = FindingRecord(OUT, small, small, failing(OUT), "cpu", "k", diagnosis=Diagnosis("bias-twice"))
    attribute(session, Attribute(cause, (sightings_of(result(text, BOTH))[DK],)))
    (event,) = [event for event in session.events if isinstance(event, Attributed)]

    assert event.why == why

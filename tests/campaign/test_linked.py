"""What is mostly seen with a cause, far more often than chance explains, is its work; so is memory that its stores overwrite."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.protocol import Shown
from flashverify.judge.record import Confirmation, Diagnosis
from flashverify.judge.verdict import Key
from tests.campaign.company_seen import CAUSE, DK, OUT, TOUCHED, book, failing, seen
from tests.campaign.test_same_access import OUTSIDE, TWICE

WRITTEN = Key("k", "sanitizer", "out-of-bounds", "o_view", "fp16")
DRIFT = Key("k", "statistics", "drift", "o", "fp16")
DOUBLED = Key("k", "sanitizer", "double-write", "o_view", "fp16")


@pytest.fixture
def mostly():
    """Memory that was touched on 9 of 10 cases with wrong values, and on one without, among many right ones."""
    company = Company()
    seen(company, "fv1", OUT, TOUCHED, times=9)
    seen(company, "fv1", TOUCHED)
    seen(company, "fv1", times=40)
    return company


def both_explained(company, *keys, **given):
    causes, records = book(company, *keys, **given)
    for key in keys:
        records[key] = msgspec.structs.replace(records[key], confirmation=Confirmation(3, 3))
        causes.explained(key)
    return causes, records


def test_the_probability_is_that_of_fishers_exact_test(mostly):
    together, several, chance = mostly.linked(TOUCHED, CAUSE)

    assert (together, several) == (9, 10)
    assert chance == pytest.approx(10 / 2_505_433_700), "all nine on ten cases, of nine on any of fifty"


def test_what_is_mostly_seen_with_a_cause_goes_to_it_explained_or_not(mostly):
    words = "seen with it on 9 of 10 cases, which chance does not explain"
    waiting, _ = book(mostly, OUT, TOUCHED)
    explained, _ = both_explained(mostly, OUT, TOUCHED)

    assert list(waiting.companions(over=True)) == [(TOUCHED, OUT, words)]
    assert list(waiting.companions()) == [], "it is asked about first"
    assert next(explained.needed()) == (TOUCHED, OUT, words)


def test_a_cause_that_is_usual_or_rarely_seen_with_it_is_none(mostly):
    usual = Company()
    seen(usual, "fv1", OUT, TOUCHED, times=9)
    seen(usual, "fv1", TOUCHED)
    seen(usual, "fv1", OUT, times=40)
    seen(mostly, "fv1", TOUCHED, times=10)
    seen(mostly, "fv1", OUT, times=10)

    for company in (usual, mostly):
        assert list(book(company, OUT, TOUCHED)[0].companions(over=True)) == []
        assert next(both_explained(company, OUT, TOUCHED)[0].needed(), None) is None


def test_a_cause_that_most_of_its_cases_do_not_show_is_none_however_rare_it_is_elsewhere():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED, times=15)
    seen(company, "fv1", TOUCHED, times=25)
    seen(company, "fv1", times=100)

    assert company.linked(TOUCHED, CAUSE)[2] < 1e-4
    assert list(book(company, OUT, TOUCHED)[0].companions(over=True)) == []


def test_values_go_to_no_cause_whose_name_or_a_trial_denies_them():
    company = Company()
    seen(company, "fv1", OUT, DK, times=9)
    seen(company, "fv1", DK)
    seen(company, "fv1", times=40)
    causes, _ = book(company, OUT, DK)
    assert [key for key, *_ in causes.companions(over=True)] == [DK]
    causes.answer(OUT, causes.sighting(DK), "")
    assert list(causes.companions(over=True)) == []

    assert list(book(company, OUT, DK, diagnosis=Diagnosis("scale-missing"))[0].companions(over=True)) == []
    assert next(both_explained(company, OUT, DK, diagnosis=Diagnosis("scale-missing"))[0].needed(), None) is None
    assert next(both_explained(company, OUT, DK)[0].needed())[:2] == (DK, OUT)


@pytest.mark.parametrize(("ratio", "folded"), [(2.0, False), (100.0, True)])
def test_small_errors_of_two_outputs_come_of_the_same_values(ratio, folded):
    company = Company()
    seen(company, "fv1", OUT, DK, times=9)
    seen(company, "fv1", DK)
    seen(company, "fv1", times=40)
    causes, records = both_explained(company, OUT, DK)
    for key, each in ((OUT, 2.0), (DK, ratio)):
        verdict = msgspec.structs.replace(failing(key), ratio=each.hex())
        records[key] = msgspec.structs.replace(records[key], verdict=verdict)

    assert (next(causes.needed(), None) is not None) is folded


@pytest.mark.parametrize(
    ("name", "other", "folded"),
    [
        ("", "", True),
        ("not-written", "not-written", True),
        ("not-written", "", True),
        ("not-written", "scale-missing", False),
    ],
)
def test_that_something_is_never_written_tells_no_two_findings_apart(mostly, name, other, folded):
    causes, records = both_explained(mostly, OUT, TOUCHED)
    for key, each in ((TOUCHED, name), (OUT, other)):
        records[key] = msgspec.structs.replace(records[key], diagnosis=Diagnosis(each))

    assert (next(causes.needed(), None) is not None) is folded


def sanitized(records, key, message):
    verdict = msgspec.structs.replace(failing(key), message=message)
    records[key] = msgspec.structs.replace(records[key], verdict=verdict)


@pytest.mark.parametrize(("message", "folded"), [(OUTSIDE, True), (OUTSIDE.replace("store", "load"), False)])
def test_memory_that_was_only_seen_with_a_store_outside_its_elements_is_the_work_of_that(message, folded):
    company = Company()
    seen(company, "fv1", WRITTEN, TOUCHED)
    seen(company, "fv1", WRITTEN, times=20)
    causes, records = both_explained(company, WRITTEN, TOUCHED)
    sanitized(records, WRITTEN, message)
    assert (next(causes.needed(), None) is not None) is folded

    seen(company, "fv1", TOUCHED)
    assert next(causes.needed(), None) is None, "it was seen without"


def test_at_the_end_memory_goes_to_a_store_that_nobody_had_time_to_explain():
    company = Company()
    seen(company, "fv1", WRITTEN, TOUCHED)
    causes, records = book(company, TOUCHED, WRITTEN)
    sanitized(records, WRITTEN, OUTSIDE)

    assert next(causes.needed(), None) is None
    assert next(causes.needed(over=True))[:2] == (TOUCHED, WRITTEN)
    waiting, records = book(company, OUT, TOUCHED, WRITTEN)
    sanitized(records, WRITTEN, OUTSIDE)
    assert next(waiting.needed(over=True))[:2] == (TOUCHED, WRITTEN)


ROUNDS = Diagnosis(sentence="Errors of O look like P truncated to fp16 (ratio to that model 1.00).", evidence="Seen.")


def test_at_the_end_two_complaints_about_one_access_are_one_finding():
    company = Company()
    seen(company, "fv1", WRITTEN)
    seen(company, "fv1", DOUBLED)
    causes, records = book(company, OUT, WRITTEN, DOUBLED)
    sanitized(records, WRITTEN, OUTSIDE)
    sanitized(records, DOUBLED, TWICE)
    (fold,) = {each for each in causes.companions(over=True) if OUT not in each}
    assert set(fold[:2]) == {WRITTEN, DOUBLED}
    assert fold[2] == "the same access of memory"

    sanitized(records, DOUBLED, TWICE.replace("forward.py:121", "forward.py:122"))
    assert list(causes.companions(over=True)) == []


@pytest.mark.parametrize(
    ("folded", "changes"),
    [
        (True, {}),
        (True, {"dtype": "bf16"}),
        (True, {"case": "fv1 causal=top-left", "not_minimal": "the time was over"}),
        (True, {"case": "fv1 launch=block_m:16"}),
        (False, {"case": "fv1 causal=top-left"}),
        (False, {"ratio": 64.0}),
        (False, {"dtype": "fp32"}),
        (False, {"output": "lse"}),
        (False, {"diagnosis": Diagnosis("scale-missing")}),
        (True, {"case": "fv1 causal=top-left", "diagnosis": ROUNDS}),
        (False, {"case": "fv1 causal=top-left", "diagnosis": msgspec.structs.replace(ROUNDS, evidence="")}),
        (False, {"case": "fv1 causal=top-left", "diagnosis": Diagnosis(sentence="O misses a key.", evidence="Read.")}),
    ],
)
def test_a_statistic_of_errors_belongs_to_small_errors_of_the_same_output_that_need_no_part(folded, changes):
    key = msgspec.structs.replace(OUT, **{k: v for k, v in changes.items() if k in ("dtype", "output")})
    changes = {k: v for k, v in changes.items() if k in ("case", "not_minimal", "diagnosis")} | {
        "verdict": msgspec.structs.replace(failing(key), ratio=changes.get("ratio", 2.0).hex())
    }
    company = Company()
    seen(company, "fv1", key, outputs=(key.output,), times=9)
    seen(company, "fv1", DRIFT, outputs=(key.output,))
    waiting, records = book(company, key, DRIFT)
    records[key] = msgspec.structs.replace(records[key], **changes)
    explained, others = both_explained(company, key, DRIFT)
    others[key] = msgspec.structs.replace(others[key], **changes)

    assert [each[0] for each in waiting.companions(over=True)] == [DRIFT] * folded
    assert (next(explained.needed(), None) is not None) is folded


def test_what_the_case_of_a_finding_shows_in_other_ways_tells_that_two_need_the_same():
    company = Company()
    seen(company, "fv1 causal=top-left", OUT, TOUCHED, times=3)
    causes, records = both_explained(company, OUT, TOUCHED)
    records[OUT] = msgspec.structs.replace(records[OUT], case="fv1 seq_q=2 causal=top-left")
    assert next(causes.needed(), None) is None
    ShownBeside(causes, {}).add(Shown(TOUCHED, (OUT,), "with plain values"))

    assert next(causes.needed())[:2] == (TOUCHED, OUT)

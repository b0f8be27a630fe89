"""What is never seen without a cause goes to it, unless the cause is seen nearly everywhere, or something speaks against it."""

import math

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.causes.symptoms import unsteady
from flashverify.campaign.protocol import Shown
from flashverify.case.text import parse_case
from flashverify.judge.record import Confirmation, Diagnosis, Folded
from flashverify.judge.verdict import CaseResult, Key, OutputStats
from tests.campaign.company_seen import CAUSE, DK, OUT, TOUCHED, book, failing, seen


def test_company_that_chance_does_not_explain_is_told_from_company_that_it_does():
    rare, usual = Company(), Company()
    for company, others in ((rare, 1), (usual, 40)):
        seen(company, "fv1", OUT, TOUCHED, times=3)
        seen(company, "fv1", OUT, times=others)
    seen(rare, "fv1", times=40)

    assert rare.met(TOUCHED, CAUSE) == (3, pytest.approx((4 / 44) ** 3))
    together, chance = usual.met(TOUCHED, CAUSE)
    assert together == 3
    assert chance > 0.5, "the cause is everywhere: its company says nothing"


def test_only_cases_with_the_parts_that_the_bucket_needs_say_how_usual_the_cause_is():
    company = Company()
    seen(company, "fv1 causal=top-left", OUT, TOUCHED, times=2)
    seen(company, "fv1 causal=top-left", OUT, times=20)
    seen(company, "fv1", times=1000)

    assert company.met(TOUCHED, CAUSE)[1] > 0.8, "both need the same part"


def test_what_fails_without_the_mask_that_a_cause_needs_is_not_its_work():
    company = Company()
    seen(company, "fv1 causal=top-left", OUT, TOUCHED, times=4)
    seen(company, "fv1", times=40)
    minimal = parse_case("fv1 seq_k=2 causal=bottom-right")
    assert company.met(TOUCHED, CAUSE, minimal)[0] == 4
    seen(company, "fv1", OUT, TOUCHED)

    assert company.met(TOUCHED, CAUSE)[0] == 5
    assert company.met(TOUCHED, CAUSE, minimal) == (0, 1.0)


def test_a_finding_keeps_no_company_without_the_mask_of_its_minimal_case():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED, times=4)
    seen(company, "fv1", times=40)
    causes, records = book(company, OUT, TOUCHED)
    causes.looked(OUT, [causes.sighting(TOUCHED)])
    records[OUT] = msgspec.structs.replace(records[OUT], case="fv1 seq_k=2 causal=top-left")
    assert next(causes.companions(), None) is None
    records[OUT] = msgspec.structs.replace(records[OUT], not_minimal="the time was over")

    assert next(causes.companions())[:2] == (TOUCHED, OUT), "what it needs is not known"


def test_one_case_without_the_cause_speaks_against_it_if_it_could_have_shown_it():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED, times=5)
    seen(company, "fv1", times=50)
    seen(company, "fv1", TOUCHED, outputs=("dk",))
    assert company.met(TOUCHED, CAUSE)[0] == 5, "nobody compared O there"
    seen(company, "fv1", TOUCHED, Key("k", "nonfinite", "nan", "o", "fp16"))
    assert company.met(TOUCHED, CAUSE)[0] == 5, "what is not finite hides the error of O"
    seen(company, "fv1", TOUCHED)

    assert company.met(TOUCHED, CAUSE) == (0, 1.0)


def test_other_dtypes_of_a_bucket_are_other_buckets_and_other_subjects_are_not_counted():
    company = Company()
    seen(company, "fv1 dtype=fp32", TOUCHED)
    seen(company, "fv1", OUT, TOUCHED)
    company.add(CaseResult("fv1", "another", "cpu", (failing(TOUCHED),)))

    assert company.met(TOUCHED, CAUSE)[0] == 1
    assert company.met(msgspec.structs.replace(TOUCHED, dtype="fp32"), CAUSE) == (0, 1.0)


def test_checks_of_bits_say_nothing_of_an_output_that_differs_from_run_to_run():
    cause = {("determinism", "repeat", "dk")}

    assert unsteady(cause, ("padding", "padding", "dk"))
    assert not unsteady(cause, ("padding", "padding", "dq"))
    assert not unsteady(cause, ("accuracy", "bound", "dk"))
    assert unsteady({("determinism", "repeat", "o")}, ("reuse", "values", "dq")), "it is made of O"
    assert not unsteady({("determinism", "order", "dk")}, ("padding", "padding", "dk"))


def test_a_companion_is_folded_after_the_cause_was_asked_and_not_against_its_answer():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED)
    seen(company, "fv1", times=40)
    causes, _ = book(company, OUT, TOUCHED)
    sighting = causes.sighting(TOUCHED)

    assert next(causes.companions(), None) is None, "what takes one run is asked first"
    causes.looked(OUT, [sighting])
    assert next(causes.companions()) == (TOUCHED, OUT, "seen on 1 case, never without it")
    causes.answer(OUT, sighting, "")
    assert next(causes.companions(), None) is None, "one case by chance is not enough against an answer"
    seen(company, "fv1", OUT, TOUCHED, times=2)
    assert next(causes.companions()) == (TOUCHED, OUT, "seen on 3 cases, never without it")


def test_at_the_end_it_is_enough_that_nothing_tells_two_apart_unless_a_diagnosis_was_to_say_it():
    company = Company()
    seen(company, "fv1", OUT, DK, TOUCHED, times=5)
    named = Diagnosis("scale-missing")

    plain, _ = book(company, OUT, TOUCHED)
    assert next(plain.companions(), None) is None
    assert next(plain.companions(over=True))[2] == "seen on 5 cases, never without it; nothing tells it apart"
    told, _ = book(company, OUT, DK, diagnosis=named)
    assert next(told.companions(over=True), None) is None, "a diagnosis says what it accounts for"
    waiting, records = book(company, DK, OUT)
    records[DK] = msgspec.structs.replace(records[DK], confirmation=Confirmation())
    assert next(waiting.companions(over=True), None) is None, "its own minimal case speaks for it"
    records[DK] = msgspec.structs.replace(records[DK], not_minimal="the time was over")
    assert next(waiting.companions(over=True))[:2] == (DK, OUT), "the clearer one leads"


@pytest.mark.parametrize(("ratio", "folded"), [(2.0**30, True), (math.inf, False)])
def test_company_does_not_give_a_step_that_rounds_what_no_rounding_makes(ratio, folded):
    company = Company()
    seen(company, "fv1", OUT, DK, times=5)
    said = Diagnosis("", "Errors of O look like P rounded to bf16 (ratio to that model 1.00).", evidence="Predicted.")
    causes, records = book(company, OUT, DK, diagnosis=said)
    records[DK] = msgspec.structs.replace(records[DK], verdict=msgspec.structs.replace(failing(DK), ratio=ratio.hex()))

    assert (next(causes.companions(over=True), None) is not None) is folded


def test_two_explained_findings_are_one_in_two_dtypes_or_where_one_is_never_seen_without_the_other():
    company = Company()
    in_bf16 = msgspec.structs.replace(OUT, dtype="bf16")
    causes, _ = book(company, OUT, TOUCHED, DK, in_bf16)
    assert causes.lead(TOUCHED, OUT) is None, "it was not explained"
    for key in (TOUCHED, DK, in_bf16):
        causes.explained(key)
    seen(company, "fv1", OUT, TOUCHED, times=3)
    seen(company, "fv1", OUT, DK)
    seen(company, "fv1", DK)
    seen(company, "fv1", times=20)

    assert causes.lead(in_bf16, OUT) == OUT
    assert causes.lead(TOUCHED, OUT) == OUT
    assert causes.lead(DK, OUT) is None


def test_of_two_findings_the_one_that_is_seen_alone_leads_whichever_case_shows_the_other():
    company = Company()
    causes, _ = book(company, OUT, DK)
    causes.explained(DK)
    seen(company, "fv1", OUT, DK, times=3)
    seen(company, "fv1", OUT, times=9)
    seen(company, "fv1", times=20)

    assert (causes.lead(OUT, DK), causes.lead(DK, OUT)) == (OUT, OUT)
    shown = ShownBeside(causes, {})
    shown.add(Shown(DK, (OUT,), "its minimal case shows it too"))
    assert list(shown.same()) == [(DK, OUT, "its minimal case shows that too, and it was never seen alone")]


def test_what_fails_in_no_fresh_process_leads_what_nobody_tried_there():
    company = Company()
    seen(company, "fv1", DK)
    causes, _ = book(company, OUT, DK, failed=0)

    assert next(causes.companions(), None) is None
    assert next(causes.companions(over=True))[:2] == (DK, OUT)


def test_at_the_end_a_finding_leads_that_nobody_had_time_to_run_in_a_fresh_process():
    company = Company()
    seen(company, "fv1", OUT, TOUCHED, times=5)
    causes, records = book(company, OUT, TOUCHED)
    records[OUT] = msgspec.structs.replace(records[OUT], confirmation=Confirmation())
    causes.explained(OUT)

    assert next(causes.companions(over=True))[:2] == (TOUCHED, OUT)


def test_wrong_values_of_the_forward_are_not_the_work_of_a_gradient():
    company = Company()
    seen(company, "fv1", DK, OUT, times=5)
    causes, _ = book(company, DK, OUT)
    assert next(causes.companions(over=True), None) is None
    seen(company, "fv1", DK, TOUCHED, times=5)
    causes, _ = book(company, DK, TOUCHED)

    assert next(causes.companions(over=True))[:2] == (TOUCHED, DK)


def test_a_failure_of_a_problem_that_a_check_made_counts_for_the_parts_of_that_problem():
    company = Company()
    lengths = "fv1 seq_k=9 klen=4"
    made = [msgspec.structs.replace(failing(key), case=lengths) for key in (OUT, DK)]
    stats = (OutputStats("o", "end-to-end", 4), OutputStats("dk", "end-to-end", 4))
    company.add(CaseResult("fv1 seq_k=4", "k", "cpu", (failing(TOUCHED), *made), stats))

    assert company.met(DK, CAUSE, parse_case(lengths))[0] == 1, "both failed with lengths"
    assert company.alone(TOUCHED, CAUSE) == ["fv1 seq_k=4"], "on the case itself O was right"
    assert company.alone(OUT, {("memory", "touched", "o")}) == [], "nobody looked at memory there"


def test_a_bucket_that_was_seen_alone_in_another_dtype_stays_at_the_end_though_it_holds_that():
    company = Company()
    in_fp32 = msgspec.structs.replace(DK, dtype="fp32")
    seen(company, "fv1 dtype=fp32", msgspec.structs.replace(OUT, dtype="fp32"), in_fp32)
    seen(company, "fv1", OUT, DK)
    seen(company, "fv1", DK)
    causes, records = book(company, OUT, in_fp32, DK)
    folds = causes.companions(over=True)
    assert next(folds)[:2] == (DK, in_fp32)
    del records[DK]
    records[in_fp32] = msgspec.structs.replace(records[in_fp32], folded=(Folded(DK, "fv1", "", "company"),))
    assert list(folds) == []

    records[in_fp32] = msgspec.structs.replace(records[in_fp32], folded=())
    assert [fold[:2] for fold in causes.companions(over=True)] == [(in_fp32, OUT)]


@pytest.mark.parametrize("output", ["o", "dk"])
def test_where_no_row_sees_a_key_no_value_of_a_row_that_sees_one_could_be_wrong(output):
    """Of a gradient of a key a value other than 0 is wrong there too."""
    empty = Key("k", "accuracy", "empty-row", "lse", "fp16")
    cause = frozenset({("accuracy", "bound", output)})

    def alone(telling):
        stats = [OutputStats(name, "end-to-end", 4, telling=telling) for name in ("o", "dk", "lse")]
        company = Company()
        company.add(CaseResult("fv1 seq_k=0", "k", "cpu", (failing(empty),), tuple(stats)))
        return company.alone(empty, cause)

    assert alone(4) == alone(-1) == ["fv1 seq_k=0"]
    assert alone(0) == ([] if output == "o" else ["fv1 seq_k=0"])
    assert Company().alone(empty, cause) == []


@pytest.mark.parametrize(
    ("case", "lead", "folded"),
    [
        ("fv1 dropout=0.5", {}, True),
        ("fv1 seq_k=2", {}, False),
        ("fv1 seq_k=2", {"not_minimal": "late"}, True),
        ("fv1 dropout=0.5 backward=no", {}, True),
    ],
    ids=["the part", "without it", "nobody knows what it needs", "without a backward"],
)
def test_at_the_end_a_failure_does_not_go_to_a_finding_whose_part_its_smaller_case_lacks(case, lead, folded):
    company = Company()
    causes, records = book(company, DK, OUT)
    records[DK] = msgspec.structs.replace(records[DK], case="fv1 dropout=0.5", confirmation=Confirmation(3, 3), **lead)
    other = msgspec.structs.replace(DK, output="dv")
    records[other] = msgspec.structs.replace(records.pop(OUT), key=other, first="fv1 dropout=0.5 seq_q=3", case=case)
    seen(company, "fv1 dropout=0.5 seq_q=3", DK, other, outputs=("dk", "dv"))
    causes.explained(DK)

    assert [found for found, *_ in causes.companions(over=True)] == ([other] if folded else [])
    records[other] = msgspec.structs.replace(records[other], first=case)
    assert [found for found, *_ in causes.companions(over=True)] == [other], "that is the case that was judged"

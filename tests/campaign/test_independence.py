"""At the end findings that nothing tells apart are one; what was seen where the other one cannot be stays a finding."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.diagnosis.looks import looks
from flashverify.judge.record import Confirmation, Diagnosis
from flashverify.judge.verdict import Key
from tests.campaign.company_seen import DK, OUT, book, seen

NAN = Key("k", "nonfinite", "nan", "o", "fp32")
EMPTY = Key("k", "accuracy", "empty-row", "o", "fp32")
WRONG = Key("k", "accuracy", "bound", "o", "fp32")
DQ = Key("k", "accuracy", "bound", "dq", "fp32")
READ, WRITTEN = (Key("k", "sanitizer", "out-of-bounds", tensor, "fp32") for tensor in ("q_view", "o_view"))
RAISED = Key("k", "exception", "exception", "ValueError", "fp32")


def left(first, second, **changes):
    """What goes where of two findings, each a bucket and the text of its minimal case, seen on that alone; `changes` of the second one."""
    company = Company()
    for key, case in (first, second):
        seen(company, case, key, outputs=("o", "dq", "dk"))
    causes, records = book(company, first[0], second[0])
    for key, case in (first, second):
        records[key] = msgspec.structs.replace(records[key], case=case, confirmation=Confirmation(3, 3))
        causes.explained(key)
    records[second[0]] = msgspec.structs.replace(records[second[0]], **changes)
    return [(key, lead) for key, lead, _ in causes.remaining.folds()]


def message(key, kernel):
    return msgspec.structs.replace(book(Company(), key)[1][key].verdict, message=f"k.py:1: {kernel}: store of x[3] in")


def test_one_output_that_is_wrong_in_two_ways_under_one_condition_is_one_finding():
    plain, windowed = "fv1 dtype=fp32", "fv1 dtype=fp32 window=3,3"

    assert left((WRONG, plain), (NAN, windowed)) == [(NAN, WRONG)]
    assert left((WRONG, windowed), (NAN, plain)) == [(NAN, WRONG)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fv1 dtype=fp32 window=3,3", "fv1 dtype=fp32 dropout=0.5"),
        ("fv1 dtype=fp32 batch=2", "fv1 dtype=fp32 heads_q=2 heads_kv=1"),
        ("fv1 dtype=fp32 seq_k=40", "fv1 dtype=fp32 seq_q=40 seq_k=8"),
    ],
)
def test_two_findings_that_need_what_the_other_one_has_not_stay_two(first, second):
    assert left((WRONG, first), (NAN, second)) == []


def test_a_case_that_is_not_minimal_needs_no_size_that_it_has():
    sizes = "fv1 dtype=fp32 seq_k=40", "fv1 dtype=fp32 seq_q=40 seq_k=8"

    assert left((WRONG, sizes[0]), (NAN, sizes[1]), not_minimal="late") == [(NAN, WRONG)]


def test_rows_without_keys_are_a_need():
    assert left((WRONG, "fv1 dtype=fp32 dropout=0.5"), (EMPTY, "fv1 dtype=fp32")) == []


@pytest.mark.parametrize(("ratio", "stay"), [(2.0, True), (1e6, False)])
def test_16_bits_are_a_need_where_the_error_is_small(ratio, stay):
    small = msgspec.structs.replace(book(Company(), OUT)[1][OUT].verdict, ratio=ratio.hex())
    gone = left((NAN, "fv1 dtype=fp32 window=3,3"), (OUT, "fv1"), verdict=small)

    assert bool(gone) is not stay


def test_a_second_cause_of_a_bucket_stays_where_the_first_one_cannot_be():
    second = msgspec.structs.replace(WRONG, cause=1)

    assert left((WRONG, "fv1 dtype=fp32 window=3,3"), (second, "fv1 dtype=fp32")) == []
    assert left((WRONG, "fv1 dtype=fp32"), (second, "fv1 dtype=fp32 window=3,3")) == [(second, WRONG)]


def test_a_name_that_does_not_account_for_another_output_tells_it_apart():
    named = Diagnosis("scale-missing", "It is wrong.")
    plain = "fv1 dtype=fp32"
    company = Company()
    seen(company, plain, WRONG, DQ, outputs=("o", "dq"))
    causes, records = book(company, WRONG, DQ, diagnosis=named)

    assert [key for key, *_ in causes.remaining.folds()] == [DQ], "nobody asked"
    causes.answer(WRONG, causes.sighting(DQ), "")
    assert list(causes.remaining.folds()) == []
    records[WRONG] = msgspec.structs.replace(records[WRONG], diagnosis=None)
    assert [key for key, *_ in causes.remaining.folds()] == [DQ]
    assert left((WRONG, plain), (NAN, plain), diagnosis=named) == [(WRONG, NAN)], "the one with the name leads"


def test_one_name_under_fewer_conditions_is_one_finding_and_two_names_are_two():
    company = Company()
    causes, records = book(company, WRONG, DQ)
    for key, name, conditions in ((WRONG, "a", ("seq_q > 4",)), (DQ, "a", ("seq_q > 2",))):
        causes.explained(key)
        diagnosis = Diagnosis(name, "It is wrong.", conditions=conditions)
        records[key] = msgspec.structs.replace(records[key], confirmation=Confirmation(3, 3), diagnosis=diagnosis)
    assert [key for key, *_ in causes.remaining.folds()] == [DQ]

    other = msgspec.structs.replace(records[DQ], diagnosis=Diagnosis("b", "It is wrong."))
    records[DQ] = other
    assert list(causes.remaining.folds()) == []


def test_each_output_right_where_the_other_is_wrong_tells_two_apart():
    company = Company()
    seen(company, "fv1 seq_q=3", OUT)
    causes, records = book(company, OUT, DK)
    records[DK] = msgspec.structs.replace(records[DK], confirmation=Confirmation(3, 3))
    causes.explained(DK)
    assert [key for key, *_ in causes.remaining.folds()] == [DK]

    seen(company, "fv1 seq_q=2", DK)
    causes, records = book(company, OUT, DK)
    causes.explained(OUT)
    assert list(causes.remaining.folds()) == []


def test_accesses_of_one_kernel_are_one_finding():
    cases = "fv1 dtype=fp32 window=3,3", "fv1 dtype=fp32 dropout=0.5"
    verdicts = message(READ, "dq_kernel"), message(WRITTEN, "dkdv_kernel")

    def accesses(second):
        company = Company()
        causes, records = book(company, READ, WRITTEN)
        for key, case, verdict in ((READ, cases[0], verdicts[0]), (WRITTEN, cases[1], second)):
            causes.explained(key)
            records[key] = msgspec.structs.replace(
                records[key], case=case, verdict=verdict, confirmation=Confirmation(3, 3)
            )
        return [key for key, *_ in causes.remaining.folds()]

    assert accesses(message(WRITTEN, "dq_kernel")) == [WRITTEN]
    assert accesses(verdicts[1]) == []


def test_nothing_goes_to_a_finding_that_was_not_explained_and_no_exception_goes_anywhere():
    waiting, _ = book(Company(), WRONG, NAN, failed=0)

    assert list(waiting.remaining.folds()) == []
    assert left((WRONG, "fv1 dtype=fp32"), (RAISED, "fv1 dtype=fp32")) == []


def test_a_case_that_nobody_made_smaller_needs_nothing():
    needs = "fv1 dtype=fp32 window=3,3", "fv1 dtype=fp32 dropout=0.5"

    assert left((WRONG, needs[0]), (NAN, needs[1]), not_minimal="it was not minimised yet") == [(NAN, WRONG)]


def test_values_of_another_row_are_no_need_of_an_output_without_rows():
    small = msgspec.structs.replace(book(Company(), OUT)[1][OUT].verdict, ratio=(2.0).hex())
    cases = "fv1 dtype=fp32 dropout=0.5", "fv1 dtype=fp32 seq_q=0"

    assert left((WRONG, cases[0]), (msgspec.structs.replace(DQ, output="dk"), cases[1]), verdict=small) == []


@pytest.mark.parametrize(
    ("error", "output", "stay"), [("shape", "dk", True), ("shape", "o", False), ("bound", "o", False)]
)
def test_wrong_values_make_no_other_output_of_a_wrong_shape(error, output, stay):
    key = msgspec.structs.replace(WRONG, error=error, output=output, dtype="fp16")

    assert (left((WRONG, "fv1 dtype=fp32"), (key, "fv1")) == []) is stay


def test_other_cases_of_a_bucket_say_nothing_of_its_second_cause():
    company = Company()
    seen(company, "fv1 seq_q=3", OUT)
    seen(company, "fv1 seq_q=2", DK)
    second = msgspec.structs.replace(DK, cause=1)
    causes, _ = book(company, OUT, second)
    causes.explained(second)

    assert [key for key, *_ in causes.remaining.folds()] == [second]


def test_one_form_under_which_two_findings_would_be_right_is_one_lack_of_precision():
    """Each needs a part that the other one lacks, and makes another output wrong."""
    needs = "fv1 dtype=fp32 window=3,3", "fv1 dtype=fp32 dropout=0.5"

    def lacking(*forms, name=""):
        company = Company()
        causes, records = book(company, WRONG, DQ)
        for key, case, form in zip((WRONG, DQ), needs, forms, strict=True):
            seen(company, case, key, outputs=("o", "dq"))
            causes.explained(key)
            diagnosis = Diagnosis(name, "Errors look like weights.", form=form)
            records[key] = msgspec.structs.replace(
                records[key], case=case, confirmation=Confirmation(3, 3), diagnosis=diagnosis
            )
        return [key for key, *_ in causes.remaining.folds()]

    assert lacking("Form(p='tf32')", "Form(p='tf32')") == [DQ]
    assert lacking("Form(p='tf32')", "Form(ds='tf32')") == []
    assert lacking("", "") == []


@pytest.mark.parametrize(("output", "folded"), [("lse", True), ("dq", False)])
def test_outputs_of_one_kernel_whose_errors_look_like_one_step_lack_one_precision(output, folded):
    other = msgspec.structs.replace(WRONG, output=output)
    needs = "fv1 dtype=fp32 window=3,3", "fv1 dtype=fp32 dropout=0.5"
    company = Company()
    causes, records = book(company, WRONG, other)
    for key, case, said in zip(
        (WRONG, other), needs, ("Q, or the row sum of P rounded", "the row sum of P rounded"), strict=True
    ):
        seen(company, case, key, outputs=("o", "lse", "dq"))
        causes.explained(key)
        sentence = f"Errors look like {said} (ratio to that model 1.00, 100 % of the squared error explained)."
        records[key] = msgspec.structs.replace(
            records[key], case=case, confirmation=Confirmation(3, 3), diagnosis=Diagnosis("", sentence)
        )

    assert [key for key, *_ in causes.remaining.folds()] == ([other] if folded else [])


def test_a_look_has_no_numbers():
    one = "Errors of O and LSE look like logits times 1.000003 (100 % of the squared error explained)."
    two = "Errors of LSE look like the LSE times 1.5 (98 % of the squared error explained), or logits times 1.0001 (91 % of the squared error explained)."

    assert looks(one) & looks(two) == {"logits times a number"}
    assert looks("The weights are P'.") == frozenset()


def test_the_sizes_of_a_case_with_an_empty_row_tell_nothing():
    sizes = "fv1 dtype=fp32 seq_k=40", "fv1 dtype=fp32 seq_q=40 seq_k=8"

    assert left((WRONG, sizes[0]), (EMPTY, sizes[1])) == [(EMPTY, WRONG)]
    assert left((WRONG, sizes[0]), (NAN, sizes[1])) == []


@pytest.mark.parametrize("output", ["lse", "delta"])
def test_what_a_name_does_not_account_for_in_empty_rows_has_its_cause_unless_each_was_seen_alone(output):
    named, plain = Diagnosis("maximum-from-zero", "It is wrong."), "fv1 dtype=fp32 seq_q=2"
    key = msgspec.structs.replace(EMPTY, output=output)

    def kept(*alone):
        company = Company()
        seen(company, plain, WRONG, key, outputs=("o", "lse", "delta"))
        for number, each in enumerate(alone):
            seen(company, f"fv1 dtype=fp32 seq_q={3 + 70 * number}", each, outputs=("o", "lse", "delta"))
        causes, _ = book(company, WRONG, key, diagnosis=named)
        causes.answer(WRONG, causes.sighting(key), "")
        causes.explained(key)
        return [found for found, *_ in causes.remaining.folds()]

    assert kept() == [key]
    assert kept(WRONG, key) == []

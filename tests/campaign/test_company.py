"""What is never seen without a cause goes to it, unless the cause is seen nearly everywhere, or something speaks against it."""

import msgspec
import pytest

from flashverify.campaign.causes.book import CauseBook
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.reservoir import Reservoir
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.causes.symptoms import unsteady
from flashverify.campaign.protocol import Profile
from flashverify.campaign.worker.profile import profile
from flashverify.case.text import format_case, parse_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict

OUT, DK = Key("k", "accuracy", "bound", "o", "fp16"), Key("k", "accuracy", "bound", "dk", "fp16")
TOUCHED = Key("k", "memory", "touched", "o", "fp16")
CAUSE = frozenset({("accuracy", "bound", "o")})


def failing(key):
    return Verdict(check=key.check, status=Status.FAIL, error=key.error, output=key.output)


def seen(company, case, *keys, outputs=("o", "dk"), times=1):
    verdicts = (*map(failing, keys), *(Verdict(check=check, status=Status.PASS) for check in ("accuracy", "memory")))
    stats = tuple(OutputStats(output, "end-to-end", 4) for output in outputs)
    for _ in range(times):
        company.add(CaseResult(case, "k", "cpu", verdicts, stats))


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


def book(company, *keys, diagnosis=None, failed=3):
    """The first key is a cause that was explained, the others wait."""
    records, reservoir = {}, Reservoir()
    for key in keys:
        reservoir.lead(Sighting(key, "fv1", failing(key)))
        records[key] = FindingRecord(key, "fv1", "fv1", failing(key), "cpu", "k")
    records[keys[0]] = msgspec.structs.replace(
        records[keys[0]], confirmation=Confirmation(3, failed), diagnosis=diagnosis
    )
    return CauseBook(records, {}, reservoir, company), records


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


def test_two_explained_findings_are_one_in_two_dtypes_or_where_one_is_never_seen_without_the_other():
    company = Company()
    in_bf16 = msgspec.structs.replace(OUT, dtype="bf16")
    causes, _ = book(company, OUT, TOUCHED, DK, in_bf16)
    assert not causes.same(TOUCHED, OUT), "it was not explained"
    for key in (TOUCHED, DK, in_bf16):
        causes.explained(key)
    seen(company, "fv1", OUT, TOUCHED, times=3)
    seen(company, "fv1", OUT, DK)
    seen(company, "fv1", DK)
    seen(company, "fv1", times=20)

    assert causes.same(in_bf16, OUT)
    assert causes.same(TOUCHED, OUT)
    assert not causes.same(DK, OUT)


def test_what_fails_in_no_fresh_process_leads_what_nobody_tried_there():
    company = Company()
    seen(company, "fv1", DK)
    causes, _ = book(company, OUT, DK, failed=0)

    assert next(causes.companions(), None) is None
    assert next(causes.companions(over=True))[:2] == (DK, OUT)


class Minimal:
    """A session whose subject fails on O for 9 keys or more, on dK with a backward, and touches memory for two tiles of rows.

    In bf16 it is refused, or O is right.
    """

    def __init__(self, refused):
        self.shown, self.toolkit, self.refused = {}, self, refused

    def subject(self, spec):
        return spec

    def refusal(self, subject, case):
        return "bf16" if self.refused and case.dtype == "bf16" else None

    def attributed(self, subject, case, verdict, diagnosis):
        return verdict.output != "dk"

    def emit(self, event):
        for key in getattr(event, "buckets", ()):
            self.shown[key.output, key.check, key.dtype] = event.why

    def judge(self, spec, case, plan):
        assert not (self.refused and case.dtype == "bf16")
        keys = (
            [OUT] * (case.seq_k >= 9 and case.dtype != "bf16")
            + [DK] * case.grad.backward
            + [TOUCHED] * (case.seq_q > 100)
        )
        return CaseResult(format_case(case), "k", "cpu", tuple(map(failing, keys)))


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("name", ["", "scale-missing"])
def test_the_minimal_case_of_a_finding_shows_what_else_is_its_work(name, refused):
    session = Minimal(refused)
    finding = FindingRecord(OUT, "fv1 seq_k=9 backward=no", "fv1", failing(OUT), "cpu", "k", diagnosis=Diagnosis(name))
    profile(session, Profile(finding))

    gradients = {("dk", "accuracy", dtype) for dtype in ("fp16", "fp32")}
    assert session.shown["o", "memory", "fp32"] == "its minimal case in fp32 with more rows and keys shows it too"
    assert ("o", "memory", "fp16") in session.shown
    assert ("o", "accuracy", "fp32") in session.shown
    assert not [key for key in session.shown if key[2] == "bf16"], "the finding does not show there"
    assert (gradients <= session.shown.keys()) is (not name), "where a diagnosis has a say, it decides"


def test_wrong_values_of_a_larger_case_are_not_the_work_of_a_finding_about_memory():
    session = Minimal(refused=True)
    finding = FindingRecord(TOUCHED, "fv1 seq_q=101 seq_k=2 backward=no", "fv1", failing(TOUCHED), "cpu", "k")
    profile(session, Profile(finding))

    assert ("dk", "accuracy", "fp16") in session.shown, "with a backward, at the same size"
    assert ("o", "accuracy", "fp16") not in session.shown, "O needs nine keys, and memory does not"

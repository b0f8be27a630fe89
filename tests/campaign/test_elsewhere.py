"""A check that compares two problems is asked of right cases: what fails on the other problem says whose work its failure is."""

import msgspec
import pytest

from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.elsewhere import IN_THE_OTHER_PROBLEM, elsewhere
from flashverify.campaign.causes.shown import ShownBeside
from flashverify.campaign.causes.sighting import Sighting
from flashverify.campaign.protocol import Attribute, Attributed, Shown
from flashverify.campaign.worker.attribute import attribute
from flashverify.case.text import parse_case
from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord, Folded
from flashverify.judge.verdict import CaseResult, Key, OtherProblem, OutputStats, Status, Verdict
from tests.campaign.company_seen import CAUSE, DK, OUT, TOUCHED, book, failing
from tests.campaign.test_same_access import Session

ALONE = Key("k", "determinism", "batch", "o", "fp16")
O_IS_WRONG, DK_IS_WRONG = ("accuracy", "bound", "o"), ("accuracy", "bound", "dk")


def different(*failures, key=ALONE, case="fv1 heads_q=1"):
    """The verdict of a check that compared a case with another problem, on which these fail."""
    return msgspec.structs.replace(failing(key), other=OtherProblem(case, failures) if failures else None)


def seen(company, case, verdict, times=1):
    passed = (Verdict(check=check, status=Status.PASS) for check in ("accuracy", "determinism"))
    for _ in range(times):
        company.add(CaseResult(case, "k", "cpu", (verdict, *passed), (OutputStats("o", "end-to-end", 4),)))


def folded(key):
    return Folded(key, "fv1", "", "shown")


@pytest.mark.parametrize(
    ("failures", "buckets", "told"),
    [
        ((O_IS_WRONG,), (OUT,), True),
        ((O_IS_WRONG, DK_IS_WRONG), (OUT,), True),
        ((DK_IS_WRONG,), (OUT, DK), False),
        ((O_IS_WRONG, ("nonfinite", "nan", "o")), (OUT,), False),
        ((("sanitizer", "out-of-bounds", "k_view"),), (OUT,), False),
        ((O_IS_WRONG,), (msgspec.structs.replace(OUT, dtype="bf16"),), False),
        ((), (OUT,), False),
    ],
    ids=[
        "same output",
        "and another one",
        "another output",
        "in another way too",
        "no values",
        "another dtype",
        "nothing",
    ],
)
def test_wrong_values_of_the_other_problem_belong_to_the_finding_that_has_their_buckets(failures, buckets, told):
    assert elsewhere(ALONE, different(*failures), buckets) is told


def test_a_gradient_that_differs_and_is_not_wrong_itself_follows_from_a_wrong_o_of_the_other_problem():
    key = msgspec.structs.replace(ALONE, output="dk")

    assert elsewhere(key, different(O_IS_WRONG, key=key), (OUT,))
    assert not elsewhere(key, different(O_IS_WRONG, DK_IS_WRONG, key=key), (OUT,)), "it is wrong itself"


def test_company_counts_what_fails_on_the_other_problem():
    company = Company()
    seen(company, "fv1 heads_q=2", different(O_IS_WRONG), times=3)
    seen(company, "fv1 heads_q=2 seq_k=3", failing(OUT))

    assert company.met(ALONE, CAUSE)[0] == 3
    assert company.alone(ALONE, CAUSE) == []
    assert company.met(OUT, {("determinism", "batch", "o")})[0] == 0, "the case of the check is right"
    seen(company, "fv1 heads_q=2 seq_k=5", different())
    assert company.met(ALONE, CAUSE)[0] == 0
    assert company.alone(ALONE, CAUSE) == ["fv1 heads_q=2 seq_k=5"]


def test_the_other_problem_has_to_have_the_parts_that_the_finding_needs():
    company = Company()
    seen(company, "fv1 heads_q=2 sink=yes", different(O_IS_WRONG, case="fv1"))
    minimal = parse_case("fv1 sink=yes")

    assert company.met(ALONE, CAUSE, parse_case("fv1 backward=no"))[0] == 1
    assert company.met(ALONE, CAUSE, minimal)[0] == 0
    seen(other := Company(), "fv1 heads_q=2", different(O_IS_WRONG, case="fv1 sink=yes"))
    assert other.met(ALONE, CAUSE, minimal)[0] == 1, "the check gave it the sink"


@pytest.mark.parametrize("name", ["", "scale-missing"])
def test_what_a_check_finds_wrong_elsewhere_is_the_work_of_a_finding_and_waits_beside_one_with_a_name(name):
    cause = FindingRecord(OUT, "fv1", "fv1", failing(OUT), "cpu", "k", diagnosis=Diagnosis(name))
    session, verdict = Session(), different(O_IS_WRONG)
    said = []
    session.emit = said.append
    attribute(session, Attribute(cause, (Sighting(ALONE, "fv1", verdict, (verdict,)),), trials=False))

    (event,) = said
    assert isinstance(event, Shown if name else Attributed)
    assert event.why == IN_THE_OTHER_PROBLEM


def test_what_waits_for_the_other_problem_is_asked_about_once_it_was_seen_without_it():
    company = Company()
    for verdict, times in ((different(O_IS_WRONG), 1), (failing(OUT), 9)):
        seen(company, "fv1 heads_q=2", verdict, times=times)
    causes, _ = book(company, OUT, ALONE, diagnosis=Diagnosis("scale-missing"))
    beside = ShownBeside(causes, {})
    beside.add(Shown(OUT, (ALONE,), "shown", sure=False))

    assert list(beside.folds()) == []
    assert causes.waiting() == []
    assert list(beside.folds(over=True)) == [(ALONE, OUT, "shown")]
    seen(company, "fv1 heads_q=2 seq_k=5", different())
    assert list(beside.folds(over=True)) == []
    assert [record.key for record in causes.waiting()] == [ALONE]


def explained(company, lead, found):
    causes, records = book(company, lead, found)
    verdict = different(O_IS_WRONG)
    records[found] = msgspec.structs.replace(records[found], verdict=verdict, confirmation=Confirmation(3, 3))
    causes.explained(found)
    return causes, records


def test_two_explained_findings_are_one_whichever_was_explained_first():
    for lead, found in ((OUT, ALONE), (ALONE, OUT)):
        causes, records = explained(Company(), lead, found)
        records[ALONE] = msgspec.structs.replace(records[ALONE], verdict=different(O_IS_WRONG))
        records[OUT] = msgspec.structs.replace(records[OUT], verdict=failing(OUT))
        assert next(causes.needed()) == (ALONE, OUT, IN_THE_OTHER_PROBLEM)


def test_a_finding_with_a_name_or_in_another_dtype_takes_it_at_the_end_if_it_was_never_seen_alone():
    company = Company()
    seen(company, "fv1 heads_q=2", different(O_IS_WRONG))
    in_bf16 = msgspec.structs.replace(OUT, dtype="bf16")
    for lead, name in ((OUT, "scale-missing"), (in_bf16, "")):
        causes, records = explained(company, lead, ALONE)
        records[lead] = msgspec.structs.replace(records[lead], diagnosis=Diagnosis(name))
        assert next(causes.needed(), None) is None
        assert next(causes.needed(over=True)) == (ALONE, lead, IN_THE_OTHER_PROBLEM)
    seen(company, "fv1 heads_q=2 seq_k=5", different())
    assert next(causes.needed(over=True), None) is None


def test_a_gradient_that_depends_on_padding_goes_to_the_finding_with_the_padding_of_o_where_nobody_had_time():
    padding, of_dsink = (Key("k", "padding", "padding", output, "fp16") for output in ("o", "dsink"))
    company = Company()
    for key in (padding, of_dsink):
        company.add(
            CaseResult(
                "fv1 sink=yes", "k", "cpu", (failing(padding), failing(key)), (OutputStats("o", "end-to-end", 4),)
            )
        )
    causes, records = book(company, OUT, of_dsink, diagnosis=Diagnosis("padding-of-v-multiplied"))
    assert list(causes.companions(over=True)) == []
    records[OUT] = msgspec.structs.replace(records[OUT], folded=(folded(padding), folded(TOUCHED)))

    assert [(key, cause) for key, cause, _ in causes.companions(over=True)] == [(of_dsink, OUT)]

"""Each condition under which two findings have causes of their own, by itself: with it they do, without it they do not."""

import math

import msgspec
import pytest

from flashverify.campaign.causes import independence
from flashverify.campaign.causes.companions import Companions
from flashverify.campaign.causes.company import Company
from flashverify.campaign.causes.diagnoses import UNWRITTEN
from flashverify.campaign.causes.independence import independent, naming
from flashverify.judge.record import Diagnosis, FindingRecord
from flashverify.judge.verdict import Key
from tests.campaign.company_seen import failing, seen

PLAIN = "fv1 dtype=fp32"
WINDOW, DROPOUT = "fv1 dtype=fp32 window=3,3", "fv1 dtype=fp32 dropout=0.5"


def finding(of="accuracy bound o", case=PLAIN, name="", conditions=(), kernel="", cause=0, **changes):
    """A finding of check, error and output, with a diagnosis of that name, or with a message about that kernel."""
    key = Key("k", *of.split(), "fp32", cause)
    message = f"k.py:1: {kernel}: store of x[3] in" if kernel else ""
    verdict = msgspec.structs.replace(failing(key), message=message)
    diagnosis = Diagnosis(name, "It is wrong.", conditions=conditions) if name else None
    return FindingRecord(key, case, case, verdict, "cpu", "k", diagnosis=diagnosis, **changes)


def apart(found, lead, company=None, *, denied=False, crossed=False, **without):
    """Whether two findings have causes of their own, where nobody saw either but in its own case."""
    company = company or Company()
    told = Companions(company).apart(found, lead)
    return independent(found, lead, company, denied=denied, told=told, crossed=lambda: crossed, **without)


def test_two_findings_of_the_same_case_have_one_cause_and_any_process_that_died_its_own():
    assert not apart(finding(), finding("accuracy bound dq"))
    assert apart(finding(), finding("exception exception ValueError"))
    assert apart(finding("crash SIGSEGV -"), finding())
    assert apart(finding("hang hang -"), finding("hang hang -"))


@pytest.mark.parametrize("cause", [(1, 0), (0, 1)])
def test_nothing_is_known_to_be_missing_unless_an_experiment_showed_it(cause):
    assert not apart(*(finding(cause=number) for number in cause))


@pytest.mark.parametrize(
    ("checks", "names", "own"),
    [
        (("memory touched o", "memory touched dq"), ("a", "b"), True),
        (("memory touched o", "accuracy bound o"), ("a", "b"), True),
        (("memory touched o", "accuracy bound o"), ("a", "a"), False),
        (("memory touched o", "accuracy bound o"), ("a", ""), False),
        (("accuracy bound o", "counting count o"), ("a", "a"), True),
        (("padding bits o", "nonfinite nan o"), ("a", "a"), True),
        (("accuracy bound o", "accuracy bound dq"), ("a", ""), False),
        (("accuracy bound o", "accuracy bound dq"), ("a", UNWRITTEN), False),
        (("accuracy bound o", "accuracy bound dq"), ("", ""), False),
    ],
)
def test_two_names_tell_findings_apart_and_one_name_under_other_conditions_where_it_says_what_the_values_are(
    checks, names, own
):
    conditions = ("seq_q > 4",), ("batch > 1",)
    found, lead = (finding(*each) for each in zip(checks, (PLAIN,) * 2, names, conditions, strict=True))

    assert apart(found, lead) is own
    assert apart(lead, found) is own


def test_that_something_is_never_written_is_no_name():
    assert [naming(finding(name=name)) for name in ("", UNWRITTEN, "a")] == ["", "", "a"]


@pytest.mark.parametrize(
    ("first", "second", "own"),
    [
        ("accuracy shape dk", "accuracy bound o", True),
        ("accuracy shape dk", "accuracy shape o", False),
        ("accuracy shape o", "accuracy bound o", False),
        ("accuracy bound dk", "accuracy bound o", False),
    ],
)
def test_a_wrong_shape_of_another_output_has_a_cause_of_its_own(first, second, own):
    assert apart(finding(first), finding(second)) is own
    assert apart(finding(second), finding(first)) is own


@pytest.mark.parametrize(
    ("named", "unnamed", "denied", "own"),
    [
        ("accuracy bound o", "accuracy bound dq", True, True),
        ("memory touched o", "nonfinite nan dq", True, True),
        ("accuracy bound o", "accuracy bound dq", False, False),
        ("accuracy bound o", "accuracy bound o", True, False),
        ("nonfinite nan o", "accuracy bound lse", True, False),
        ("accuracy bound o", "accuracy bound lse", True, True),
        ("nonfinite nan o", "accuracy bound dq", True, True),
        ("accuracy bound o", "memory touched dq", True, False),
    ],
)
def test_a_name_that_does_not_account_for_the_values_of_another_output_tells_it_apart(named, unnamed, denied, own):
    pair = finding(named, name="a"), finding(unnamed)

    assert apart(*pair, denied=denied) is own
    assert apart(*reversed(pair), denied=denied) is own
    assert not apart(finding(named), finding(unnamed), denied=denied), "nobody has a name"


@pytest.mark.parametrize(
    ("check", "kernels", "own"),
    [
        ("sanitizer out-of-bounds", ("f", "f"), False),
        ("sanitizer out-of-bounds", ("f", "g"), True),
        ("sanitizer out-of-bounds", ("", ""), True),
        ("memory touched", ("f", "f"), True),
    ],
)
def test_accesses_of_one_kernel_have_one_cause_whatever_else_tells_them_apart(check, kernels, own):
    pair = (finding(f"{check} {tensor}", kernel=kernel) for tensor, kernel in zip("ab", kernels, strict=True))

    assert apart(*pair, without=(True, True)) is own


@pytest.mark.parametrize(
    ("causes", "without", "own"),
    [
        ((0, 0), (True, True), True),
        ((0, 0), (True, False), False),
        ((0, 0), (False, True), False),
        ((1, 0), (True, False), True),
        ((1, 0), (False, True), False),
        ((0, 1), (False, True), True),
        ((0, 1), (True, False), False),
    ],
)
def test_an_experiment_tells_two_apart_both_ways_and_a_second_cause_of_a_bucket_one_way(causes, without, own):
    assert apart(*(finding(cause=cause) for cause in causes), without=without) is own


@pytest.mark.parametrize("without", [(True, False), (False, True)])
def test_a_case_says_what_no_experiment_showed(without):
    cases = (PLAIN, DROPOUT) if without[0] else (DROPOUT, PLAIN)
    pair = tuple(finding(case=case) for case in cases)

    assert not apart(*pair)
    assert apart(*pair, without=without) is False, "the same way round twice"
    assert apart(*pair, without=without[::-1])


def test_half_of_a_size_tells_two_apart_where_each_has_it():
    wide, long, both = (f"{PLAIN} seq_q={q} seq_k={k}" for q, k in ((40, 8), (20, 16), (20, 8)))

    assert apart(finding(case=wide), finding(case=long))
    assert not apart(finding(case=wide), finding(case=both)), "one alone has less"
    assert not apart(finding(case=both), finding(case=wide))
    assert not apart(finding(case=f"{PLAIN} seq_q=39 seq_k=8"), finding(case=long)), "more than half"
    assert not apart(finding(case=wide), finding(case=long, not_minimal="late"))
    zero = finding(case=f"{PLAIN} seq_q=40 seq_k=0"), finding(case=f"{PLAIN} seq_q=20 seq_k=16")
    assert not independence._with_less(*zero, Company()), "a size of 0 is another case, not a smaller one"


@pytest.mark.parametrize(
    ("first", "second", "causes", "own"),
    [
        ("accuracy bound o", "accuracy bound dq", (0, 0), True),
        ("accuracy bound o", "nonfinite nan dq", (0, 0), True),
        ("nonfinite nan o", "nonfinite nan dq", (0, 0), True),
        ("accuracy bound o", "padding bits dq", (0, 0), False),
        ("accuracy bound o", "accuracy bound o", (0, 0), False),
        ("accuracy bound o", "accuracy bound dq", (1, 0), False),
        ("accuracy bound o", "accuracy bound dq", (0, 1), False),
    ],
)
def test_each_right_where_the_other_is_wrong_tells_values_of_two_outputs_apart(first, second, causes, own):
    pair = finding(first, cause=causes[0]), finding(second, cause=causes[1])

    assert apart(*pair, crossed=True) is own
    assert not apart(*pair, crossed=False)


def test_what_was_seen_without_a_part_says_so_but_not_of_a_second_cause():
    company = Company()
    first, second = finding(case=WINDOW), finding("accuracy bound dq", DROPOUT)
    for one, case in ((first, PLAIN), (second, PLAIN)):
        seen(company, case, one.key, outputs=("o", "dq"))
    narrow = finding(case=f"{PLAIN} window=3,3 dropout=0.5"), finding("accuracy bound dq", f"{DROPOUT} window=3,3")

    assert not apart(*narrow)
    assert apart(*narrow, company), "each was seen on a plain case"
    again = msgspec.structs.replace(narrow[0], key=msgspec.structs.replace(narrow[0].key, cause=1))
    assert not apart(again, narrow[1], company), "the plain case is the work of the first cause"


def test_a_failure_is_looked_for_in_so_many_cases_of_its_bucket(monkeypatch):
    company, one = Company(), finding()
    for size in (3, 40, 400):
        seen(company, f"{PLAIN} seq_k={size} seq_q=2", one.key)
    monkeypatch.setattr(independence, "_LOOKED_AT", 2)

    assert len(list(independence._cases(one, company))) == 3, "its own, and two"


@pytest.mark.parametrize(
    ("of", "ratio", "step", "own"),
    [
        ("accuracy bound dk", math.inf, "the row sum of P rounded to bf16", True),
        ("accuracy bound dk", 2.0**30, "the row sum of P rounded to bf16", False),
        ("accuracy bound dk", math.inf, "", False),
        ("nonfinite inf dk", None, "the row sum of P rounded to bf16", False),
    ],
)
def test_an_element_that_is_exactly_0_is_made_wrong_by_no_step_that_rounds(of, ratio, step, own):
    said = f"Errors of O look like {step} (ratio to that model 1.00)." if step else "It is wrong."
    lead = msgspec.structs.replace(finding(), diagnosis=Diagnosis("", said, evidence="Predicted."))
    wrong = finding(of)
    if ratio is not None:
        wrong = msgspec.structs.replace(wrong, verdict=msgspec.structs.replace(wrong.verdict, ratio=ratio.hex()))

    assert apart(wrong, lead) is own
    assert apart(lead, wrong) is own

"""A cause that is known accounts for the failures that it made, and for no others."""

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.attribution import attributed
from flashverify.judge.record import Diagnosis
from flashverify.numerics import Form
from tests.diagnosis.planted import planted

CASE = "fv1 seq_q=9 seq_k=11 dim_qk=8 dim_v=8 causal=top-left dtype="
ONE_MORE = {"causal": lambda s, i, j: j <= i + 1}
KNOWN = Diagnosis("causal-one-key-more", "Rows see one key more.")


def doubled(self, o, z, v, lse):
    return o * 2


def failure_of(subject, text):
    case = parse_case(text)
    return case, next(v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures)


@pytest.mark.parametrize(
    "rest", ["fp32", "bf16", "fp16 backward=no", "fp32 regime=logits-1e2 seed=3", "fp32 padding=nan"]
)
def test_a_known_cause_accounts_for_its_failures_in_other_cases(rest):
    subject = planted(**ONE_MORE)
    assert attributed(subject, *failure_of(subject, CASE + rest), KNOWN)


@pytest.mark.parametrize(
    "name", ["causal-one-key-less", "causal-ignored", "", "padding-of-k-multiplied", "not-written"]
)
def test_another_cause_does_not(name):
    subject = planted(**ONE_MORE)
    assert not attributed(subject, *failure_of(subject, CASE + "fp32"), Diagnosis(name))


def test_nor_does_it_where_a_second_defect_shows_too():
    subject = planted(**ONE_MORE, output=doubled)
    assert not attributed(subject, *failure_of(subject, CASE + "fp32"), KNOWN)


def test_a_cause_that_makes_values_too_large_accounts_for_infinities():
    subject = planted(dk_factor=lambda s, p: 1 / p.scale)
    case = parse_case("fv1 seq_q=9 seq_k=11 dim_qk=8 dim_v=8 dtype=fp16 scale=0.0001 regime=overflow seed=1")
    failures = judge_case(subject, case, Plan.only("nonfinite", case)).failures
    verdict = next(v for v in failures if (v.check, v.error, v.output) == ("nonfinite", "inf", "dk"))

    assert attributed(subject, case, verdict, Diagnosis("gradient-without-scale"), alone=True)
    assert not attributed(subject, case, verdict, Diagnosis("gradient-with-ln2"), alone=True)


@pytest.mark.parametrize(("output", "told"), [("lse", True), ("o", False), ("dk", None)])
def test_a_cause_that_is_about_the_lse_alone_makes_no_o_wrong(output, told):
    subject = planted(output=doubled, lse=lambda self, whole, total: -whole, dk_factor=lambda s, p: 3.0)
    case = parse_case("fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32")
    verdict = next(v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures if v.output == output)

    assert attributed(subject, case, verdict, Diagnosis("lse-sign"), alone=True) is told


@pytest.mark.parametrize(
    ("name", "output", "told"),
    [
        ("lse-is-max", "o", False),
        ("lse-is-max", "dk", None),
        ("no-such-name", "o", None),
        ("gradient-without-scale", "dv", False),
    ],
)
def test_a_name_that_is_about_one_of_two_outputs_has_no_other_say(name, output, told):
    subject = planted(output=doubled, dk_factor=lambda s, p: 3.0, group_sum=lambda s, x, group: 2 * x)
    case = parse_case("fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32")
    verdict = next(v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures if v.output == output)

    assert attributed(subject, case, verdict, Diagnosis(name), alone=True) is told


@pytest.mark.parametrize("keys", [7, 30])
def test_what_a_cause_leaves_as_it_is_and_breaks_the_strict_prediction_is_the_work_of_another_one(keys):
    def truncated(self, o, z, v, lse):
        p = (z - z.amax(-1, keepdim=True)).exp()
        below = (p.half().view(torch.int16) - 1).view(torch.half).double()
        return below @ v / p.sum(-1, keepdim=True)

    ordered = Form(block_n=64, key_order="ascending")
    subject = planted(output=truncated, lse=lambda self, whole, total: -whole, form=lambda self, case: ordered)
    case = parse_case(f"fv1 seq_q=5 seq_k={keys} dim_qk=8 dim_v=8 dtype=fp16 backward=no")
    told = {
        (v.output, v.mode): attributed(subject, case, v, Diagnosis("lse-sign"), alone=True)
        for v in judge_case(subject, case, Plan.only("accuracy", case)).failures
    }

    assert told == {("lse", "end-to-end"): True, ("o", "strict"): False}


def test_a_cause_has_no_say_about_a_gradient_where_o_is_wrong_in_another_way_too():
    """On this case the name is wrong or too narrow: that says nothing of the gradient."""
    subject = planted(**ONE_MORE, dk_factor=lambda s, p: 3.0)
    case = parse_case(CASE + "fp32")
    verdicts = {v.output: v for v in judge_case(subject, case, Plan.only("accuracy", case)).failures}

    assert attributed(subject, case, verdicts["dk"], KNOWN, alone=True) is False, "O is as the cause has it"
    other = Diagnosis("causal-one-key-less")
    assert attributed(subject, case, verdicts["dk"], other, alone=True) is None
    assert attributed(subject, case, verdicts["o"], other, alone=True) is False

"""A mistake that several modifiers share is named by ALiBi where that shows it, and accounts for all of them."""

import pytest

from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.diagnosis.attribution import attributed
from flashverify.diagnosis.catalogue import SEMANTICS
from flashverify.diagnosis.claims import Claim
from flashverify.diagnosis.siblings import sibling
from flashverify.diagnosis.trials import Trials
from flashverify.judge.record import Diagnosis
from tests.diagnosis.planted import Plain, planted

CASE = parse_case(
    "fv1 seq_q=3 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 causal=bottom-right relative_bias=4,8 seed=3 backward=no"
)


class NoShift(Plain):
    """Every distance is measured from the top-left diagonal."""

    def distance(self, problem):
        distance = super().distance(problem)
        return distance + (problem.case.seq_k - problem.case.seq_q if problem.causal == "bottom-right" else 0)


class NoShiftOfTheTable(NoShift):
    def distance(self, problem):
        return Plain.distance(self, problem) if problem.slopes is not None else super().distance(problem)


def claim(name):
    return Claim(next(semantics for semantics in SEMANTICS if semantics.name == name))


@pytest.mark.parametrize(("subject", "name"), [(NoShift, "alibi-without-shift"), (NoShiftOfTheTable, None)])
def test_the_usual_modifier_gives_the_name_where_it_shows_the_mistake(subject, name):
    found = sibling(Trials(subject(), 30.0), CASE, claim("relative-bias-without-shift"))

    assert (found and found.semantics.name) == name


def test_a_mistake_without_a_usual_modifier_keeps_its_name():
    assert sibling(Trials(NoShift(), 30.0), CASE, claim("relative-bias-transposed")) is None


def test_a_diagnosis_accounts_for_the_same_mistake_in_another_part():
    subject = NoShift()
    verdict = next(iter(judge_case(subject, CASE, Plan.only("accuracy", CASE)).failures))

    assert attributed(subject, CASE, verdict, Diagnosis("alibi-without-shift"))
    assert attributed(subject, CASE, verdict, Diagnosis("alibi-sign")) is None


WINDOW = parse_case("fv1 seq_q=3 seq_k=9 dim_qk=8 dim_v=8 dtype=fp32 window=2,1 seed=3 backward=no")


def wider(**more):
    """The right edge of a window is one key too far; a causal mask may be made of it."""
    return planted(window=lambda s, i, j, a, b: (i - j <= a) & (j - i <= b + 1), **more)


@pytest.mark.parametrize(
    ("subject", "name"),
    [(wider(causal=lambda s, i, j: j <= i + 1), "causal-one-key-more"), (wider(), None)],
    ids=["both", "the window alone"],
)
def test_a_causal_mask_gives_the_name_of_an_edge_that_it_shares(subject, name):
    found = sibling(Trials(subject, 30.0), WINDOW, claim("window-right-one-wider"))

    assert (found and found.semantics.name) == name

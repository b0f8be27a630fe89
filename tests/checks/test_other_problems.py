"""A failure of a check that compares two problems says what fails on the other one, as the check gave it."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.passes.execution import execute
from flashverify.checks.relations import RELATIONS
from flashverify.checks.relations.ground import Ground
from flashverify.judge.verdict import OtherProblem
from flashverify.subjects import Contract
from tests.checks.naive import attention, make
from tests.checks.test_relations import BITS, CAUSAL, ROWS, subject

CASE = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 klen=4,9 seed=3 backward=no")
O_IS_WRONG = ("accuracy", "bound", "o")


def failing(function, check, question, case=CASE):
    made = make(function, contract=Contract(deterministic=True, batch_invariant=True))
    return judge_case(made, case, Plan(checks=(check,), questions={check: (question,)})).failures


def scaled(condition, factor=2.0):
    def function(p):
        o, lse = attention(p)
        return o * (factor if condition(p) else 1.0), lse

    return function


def test_a_part_of_a_problem_that_only_its_strides_make_wrong_is_said_to_be_wrong():
    (found,) = failing(scaled(lambda p: not p.q.is_contiguous()), "determinism", "solo-head")

    assert (found.check, found.output, found.case) == ("determinism", "o", "")
    assert found.other == OtherProblem(
        "fv1 batch=2 heads_q=2 seq_q=5 seq_k=9 dtype=fp32 klen=4,9 seed=3 backward=no", (O_IS_WRONG,)
    )


def test_a_part_that_is_right_in_other_bits_is_not_said_to_be_wrong():
    (found,) = failing(scaled(lambda p: p.case.heads_kv == 1, 1 + 2**-22), "determinism", "solo-head")

    assert (found.check, found.other) == ("determinism", None)


def test_values_that_a_relation_makes_are_said_to_be_wrong():
    found = failing(scaled(lambda p: bool((p.q[..., -8] == 1).all())), "relations", "lse-shift")

    assert [(v.check, v.output, v.other.failures) for v in found if v.other] == [("relations", "o", (O_IS_WRONG,))]


def test_the_padding_that_reaches_an_output_stands_in_the_case_of_the_other_problem():
    def leaky(p):
        o, lse = attention(p)
        return o + 0.0 * p.v[0, 0, 4:].sum(), lse

    (found,) = failing(leaky, "padding", "nan", parse_case(f"{CASE} padding=dirt"))

    assert parse_case(found.other.case).storage.padding == "nan"
    assert found.other.failures == (("nonfinite", "nan", "o"),)


def test_what_fails_on_the_case_too_does_not_come_of_the_other_problem():
    def twice_and_leaky(p):
        o, lse = attention(p)
        return o * 2.0, lse + 0.0 * p.v[0, 0, 4:].sum()

    found = failing(twice_and_leaky, "padding", "nan", parse_case(f"{CASE} padding=dirt"))

    assert [(v.output, v.other.failures) for v in found] == [("lse", (("nonfinite", "nan", "lse"),))]


def test_a_count_that_is_wrong_is_read_off_wrong_values():
    (found, *_) = failing(scaled(lambda p: bool((p.q == 0).all() and (p.k == 0).all())), "counting", "counting")

    assert found.other is not None
    assert found.other.failures == (("accuracy", "bound", found.output),)


@pytest.mark.parametrize("case", [ROWS, CAUSAL, BITS], ids=["rows", "causal", "bitmap"])
def test_what_relations_say_of_the_other_problems_holds_for_a_correct_attention(case):
    """The oracle takes the masks and the tensors of every problem that counts as told: it finds nothing wrong with any."""
    right = subject(contract=Contract(deterministic=True))
    ground = Ground(right, execute(right, materialize(dataclasses.replace(case), right.device())[0]))
    judged = 0
    for relation in RELATIONS:
        ground.forget()
        list(relation.run(ground) or ())
        for made in ground.passes:
            judged += 1
            assert check_accuracy(right, made).failures() == [], (relation.name, str(made.problem.case))
    assert judged >= 4

"""Where no bit is promised: bounds are made only of passes that differ, and of further readings of a form only where the first does not do."""

import dataclasses
import math

import pytest
import torch

from flashverify import parse_case
from flashverify.case.memory.materialize import materialize
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.execution import execute
from flashverify.checks.relations import check_relations, side
from flashverify.checks.relations.ground import within
from flashverify.checks.relations.side import Side, sides
from flashverify.checks.reuse import asking
from flashverify.numerics import Form
from flashverify.subjects import Contract
from flashverify.truth import Truth
from tests.checks.naive import attention, make

CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=fp32 causal=bottom-right seed=3")
NO_PROMISE = Contract(deterministic=None)


def in_float64(p):
    """The small attention rounded once: a sum over more keys has the same bits."""
    o, lse = attention(dataclasses.replace(p, q=p.q.double(), k=p.k.double(), v=p.v.double()))
    return o.float(), lse.float()


def asked(subject, names, case=CASE):
    problem, _ = materialize(case)
    return check_relations(subject, execute(subject, problem), names)


@pytest.mark.parametrize("name", ["double-v", "double-do", "hidden-keys", "appended-keys"])
def test_of_passes_that_agree_no_bound_is_made(monkeypatch, name):
    monkeypatch.setattr(side, "Truth", None)

    assert asked(make(in_float64, contract=NO_PROMISE), (name,)) == []


@pytest.mark.parametrize("name", ["double-v", "hidden-keys"])
def test_of_passes_that_differ_bounds_are_made(name):
    def wrong(p):
        o, lse = attention(p)
        return o * (1 + (p.v.abs().nan_to_num().amax() > 5.5)), lse

    assert {v.error for v in asked(make(wrong, contract=NO_PROMISE), (name,))} == {name}


def test_relations_start_from_the_truth_that_accuracy_left(monkeypatch):
    made = []
    monkeypatch.setattr(side, "Truth", lambda *given: made.append(given) or Truth(*given))
    plan = Plan(checks=("accuracy", "relations"), questions={"relations": ("linear-do",)})

    assert judge_case(make(contract=NO_PROMISE), CASE, plan).failures == ()
    assert len(made) == 2  # of the two parts


def test_a_call_that_returns_the_same_is_not_judged_again(monkeypatch):
    monkeypatch.setattr(asking, "first_failure", None)
    plan = Plan(checks=("reuse",), questions={"reuse": ("calls",)}, calls=2)

    assert judge_case(make(contract=NO_PROMISE), CASE, plan).failures == ()


@pytest.mark.parametrize("change", [1e-9, math.nan, math.inf])
def test_a_call_that_returns_something_else_is_judged(change):
    calls = []

    def changing(p):
        calls.append(p)
        o, lse = attention(p)
        return (o if len(calls) == 1 else torch.where(torch.arange(o.numel()).view(o.shape) == 7, o + change, o)), lse

    plan = Plan(checks=("reuse",), questions={"reuse": ("calls",)}, calls=2)
    found = judge_case(make(changing, contract=NO_PROMISE), CASE, plan).failures

    assert {v.error for v in found} == (set() if change < 1 else {"calls"})


def test_the_first_reading_asks_for_no_less_than_all_of_them():
    subject = make(declared_form=Form(), contract=NO_PROMISE)
    problem, _ = materialize(dataclasses.replace(CASE, mask=dataclasses.replace(CASE.mask, causal=None)))
    found = sides(subject, execute(subject, problem))

    assert found["o"].wider is None
    assert found["dq"].wider is not None
    for name in ("dq", "dk", "dv"):
        first, whole = found[name], found[name].widest()
        assert torch.equal(first.value, whole.value)
        assert bool((first.bound <= whole.bound).all())
        assert bool((~first.free | whole.free).all())
    assert bool((found["dq"].bound < found["dq"].widest().bound).any())


def a_side(value, bound, wider=None):
    made = [torch.tensor([float(x)], dtype=torch.float64) for x in (value, bound)]
    return Side(*made, torch.tensor([False]), wider)


def test_a_difference_beyond_the_first_reading_is_put_to_all_of_them():
    left, right = a_side(1.0, 0.1, lambda: a_side(1.0, 0.4)), a_side(1.5, 0.2)

    assert list(within("x", {"dq": left}, {"dq": right})) == []
    (verdict,) = within("x", {"dq": left}, {"dq": a_side(2.0, 0.2)})
    assert "both bounds allow 0.6" in verdict.message


def test_what_is_made_of_a_side_is_made_of_its_largest_bound_too():
    one = a_side(1.0, 0.1, lambda: a_side(1.0, 0.4))
    made = one.times(-2.0).shifted(3.0).map(lambda x: x.repeat(2)).plus(a_side(1.0, 1.0)).without(torch.tensor([True]))

    assert made.value.tolist() == [2.0, 2.0]
    assert made.bound.tolist() == [1.2, 1.2]
    assert made.widest().bound.tolist() == [1.8, 1.8]
    assert made.widest().free.tolist() == [True, True]

"""What a fuzzed case is asked: the shares of the questions, their cost, and what a new question changes."""

import collections
import dataclasses

import pytest

from flashverify import parse_case
from flashverify.case.case import POISONS
from flashverify.checks import CHECK_SPECS, Plan, judge_case
from flashverify.checks.dealing import BUDGET, deal
from flashverify.checks.spec import Question, Slot
from tests.checks.test_engine import Wrapped

CASE = parse_case("fv1 batch=2 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=fp32 causal=bottom-right klen=4,9")
PLAIN = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=6 dtype=fp32")
FORWARD = dataclasses.replace(PLAIN, grad=dataclasses.replace(PLAIN.grad, backward=False))
LAUNCHED = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=6 seq_k=6 dtype=fp32 causal=top-left launch=block_m:16")
SAME_BITS = ("repeat", "solo-sequence", "solo-head", "permuted", "program-order")
EXACT = {"double-v": 1, "double-do": 1, "appended-keys": 2, "chain-tree": 2}
SPARE = (
    *("alone", "key-permutation", "split-merge", "lse-shift", "linear-do", "hidden-keys", "hull", "lse-range"),
    *("ds-sum", "counting"),
)
ADDRESSES = ("batch", "head", "row", "all")
TWO_PASSES = ("split-merge", "linear-do", "alone")
OF_BACKWARDS = {"backward": 1, "forward-between": 2, "another-do": 1}
STATE = {"values": 3, "lengths": 6, "settings": 3, "storage": 3, "larger": 1, **OF_BACKWARDS}
STATE_PASSES = 3
MANY = 4_000


def seeded(case, count):
    return [dataclasses.replace(case, values=dataclasses.replace(case.values, seed=seed)) for seed in range(count)]


def near(count, share, total=MANY):
    """Within five standard deviations of a share of draws."""
    return abs(count - share * total) <= 5 * (share * (1 - share) * total) ** 0.5


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("case", "exact", "double"),
    [
        (PLAIN, ("double-v", "double-do", "appended-keys"), ("appended-keys",)),
        (FORWARD, ("double-v", "appended-keys"), ("appended-keys",)),
        (LAUNCHED, tuple(EXACT), ()),
    ],
    ids=["plain", "forward", "launch"],
)  # fmt: skip
def test_every_question_of_a_slot_has_the_same_share(case, exact, double):
    drawn, spare, padding, fills, far = (collections.Counter() for _ in range(5))
    for each in seeded(case, MANY):
        plan = Plan.fuzz(each)
        names = {(check, name) for check in plan.questions for name in plan.asked(check)}
        single = {name for _, name in plan.spare}
        drawn.update(name for _, name in names if name in (*SAME_BITS, *exact))
        spare.update(name for _, name in names if name in SPARE)
        padding.update(plan.asked("padding"))
        fills.update(plan.asked("sanitizer"))
        far.update(plan.asked("addresses"))
        assert single <= {name for _, name in names}

    places = len(SAME_BITS) + len(exact)
    doubled = len(double) / places
    given = (1 - doubled) / 4  # shares of the spare slot
    kept = 1 - doubled - given * (len(TWO_PASSES) + 1) / len(SPARE)  # what leaves room for a question about equal bits
    for name in (*SAME_BITS, *exact):
        share = 1 / places if name in double else kept / (places - len(double))
        assert near(drawn[name], share), name
    assert set(drawn) == {*SAME_BITS, *exact}
    for name in SPARE:
        assert near(spare[name], given / len(SPARE)), name
    assert set(padding) == set(POISONS) - {case.storage.padding}
    for name, count in padding.items():
        assert near(count, (1 - given / len(SPARE)) / len(padding)), name
    for name in ADDRESSES:  # in half of the cases in which nothing else takes the place of a spare question
        assert near(far[name], (1 - doubled) * 3 / 4 / 2 / len(ADDRESSES)), name
    assert set(far) == set(ADDRESSES)
    assert all(near(count, 1 / 3) for count in fills.values())
    assert len(fills) == 3


@pytest.mark.parametrize("case", [CASE, PLAIN, LAUNCHED], ids=["padded", "plain", "launch"])
def test_a_fuzz_plan_fits_the_budget_and_names_no_check_without_a_question(case):
    costs = {(spec.name, question.name): question.cost(case) for spec in CHECK_SPECS for question in spec.questions}
    for each in seeded(case, 2000):
        plan = Plan.fuzz(each)
        on_top = ("sanitizer", "reuse")
        asked = [(check, name) for check in plan.questions for name in plan.asked(check) if check not in on_top]
        assert len(plan.asked("reuse")) <= 1
        assert sum(costs["reuse", name] for name in plan.asked("reuse")) <= STATE_PASSES
        cost = sum(costs[pair] for pair in asked)
        assert 1 + cost <= BUDGET
        assert len(plan.asked("sanitizer")) == 1
        assert 1 + cost - sum(costs[pair] for pair in plan.spare) + 1 <= BUDGET, "a fill fits where spare ones give way"
        assert {spec.name for spec in CHECK_SPECS} - set(plan.checks) == {
            check for check, names in plan.questions.items() if not names
        }
        assert not plan.asked("config")
        assert not {"stream", "graph"} & set(plan.asked("reuse"))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_fuzz_plan_costs_at_most_four_passes_and_a_question_about_state():
    calls = []

    def counted(_problem, result):
        calls.append(1)
        return result

    counts = {True: set(), False: set()}
    for case in seeded(CASE, 24):
        calls.clear()
        plan = Plan.fuzz(case)
        judge_case(Wrapped(forward=counted), case, plan)
        counts[bool(plan.asked("reuse"))].add(len(calls))

    assert max(counts[False]) == BUDGET
    assert max(counts[True]) <= BUDGET + STATE_PASSES


@pytest.mark.parametrize("case", [CASE, PLAIN, FORWARD], ids=["padded", "plain", "forward"])
def test_one_case_in_three_is_asked_about_state_by_the_weights_of_the_questions(case):
    total = 1_000
    drawn = collections.Counter(name for each in seeded(case, total) for name in Plan.fuzz(each).asked("reuse"))
    absent = {*(["lengths"] if case is not CASE else []), *(OF_BACKWARDS if case is FORWARD else ())}
    weights = {name: weight for name, weight in STATE.items() if name not in absent}

    assert set(drawn) == set(weights)
    for name, weight in weights.items():
        assert near(drawn[name], weight / sum(weights.values()) / 3, total), name


def test_the_questions_of_a_case_do_not_depend_on_the_order_of_the_checks():
    for case in seeded(CASE, 200):
        here, there = deal(case, CHECK_SPECS), deal(case, CHECK_SPECS[::-1])
        assert (here.questions, here.spare) == (there.questions, there.spare)


@pytest.mark.slow
def test_a_new_question_takes_its_share_and_leaves_the_other_cases_alone():
    counting = next(spec for spec in CHECK_SPECS if spec.name == "counting")
    more = dataclasses.replace(counting, questions=(*counting.questions, Question(name="new", slot=Slot.SAME_BITS)))
    specs = tuple(more if spec is counting else spec for spec in CHECK_SPECS)
    cases = seeded(PLAIN, 4000)
    changed = 0
    for case in cases:
        before, after = deal(case, CHECK_SPECS), deal(case, specs)
        if after.questions != before.questions:
            changed += 1
            assert after.questions["counting"][-1:] == ("new",) or after.spare != before.spare

    places = len(SAME_BITS) + 3
    assert changed <= 1.2 * len(cases) / (places + 1)
    assert changed >= 0.5 * len(cases) / (places + 1)


def test_names_that_a_plan_does_not_know_are_refused():
    with pytest.raises(ValueError, match="checks: 'speed' is not accepted"):
        Plan(checks=("speed",))
    with pytest.raises(ValueError, match=r"questions\['relations'\]: 'hulls' is not accepted: one of double-v"):
        Plan(questions={"relations": ("hulls",)})
    with pytest.raises(ValueError, match="accuracy is one question"):
        Plan(questions={"accuracy": ("o",)})

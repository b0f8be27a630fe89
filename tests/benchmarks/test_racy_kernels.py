"""The planted races of `benchmarks/racy_kernels.py` in the interpreter: each is found, and its control is not."""

import dataclasses
import itertools

import gpu_races
import pytest
import torch
from racy_kernels import RACES, chain

from flashverify import parse_case
from flashverify.checks import Plan, determinism, judge_case
from flashverify.interpreter import Sanitizer, session, watch
from flashverify.interpreter.hooks import interpreting
from tests.checks.naive import SUPPORTS, attention, make

SEEDS = range(6)
CASE = parse_case("fv1 heads_q=2 heads_kv=2 seq_q=3 seq_k=5 dtype=fp32 backward=no")
PLAN = Plan(checks=("sanitizer", "determinism"), questions={"determinism": ("program-order",)})

EACH = pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)


@pytest.fixture(autouse=True)
def _needs_the_interpreter():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")


def reported(race, *, safe):
    with session(Sanitizer), watch() as seen:
        race.run(chain("cpu", 64), 1, 2, safe)
    return {report.kind for report in seen.reports.values()}


def right_in_turns(race, *, safe):
    chained = chain("cpu", 64)
    with session() as opened:
        answers = []
        for seed in SEEDS:
            with opened.interleaved(seed):
                answers.append(torch.equal(race.run(chained, 1, 2, safe), race.expected))
    return answers


@pytest.mark.one_in(2)
@EACH
def test_a_control_is_right_however_its_programs_take_turns(race):
    assert reported(race, safe=True) == set()
    assert all(right_in_turns(race, safe=True))


@EACH
def test_a_race_is_reported_or_gives_another_answer_in_turns(race):
    kinds = reported(race, safe=False)

    if race.name == "sum_in_any_order":  # every access is atomic: only the order of the additions is open
        assert kinds == set()
        assert not all(right_in_turns(race, safe=False))
    else:
        assert kinds & {"race", "double-write"}


def test_scratch_of_two_heads_is_right_in_every_order_of_whole_programs_and_wrong_in_turns():
    race = next(race for race in RACES if race.name == "shared_scratch")
    chained = chain("cpu", 64)
    for order in (range, lambda count: range(count)[::-1]):
        with session(order=lambda count, order=order: list(order(count))):
            assert torch.equal(race.run(chained, 1, 2, False), race.expected)

    assert not any(right_in_turns(race, safe=False))


@EACH
def test_an_attention_with_a_race_fails_the_check_that_names_it(race):
    def racy(p, *, safe=False):
        o, lse = attention(p)
        return o + (race.run(chain("cpu", 64), 1, 2, safe) - race.expected).sum(), lse

    def told(function):
        seeds = (each for each in range(8) if each % 4 == 0)
        cases = [dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, seed=seed)) for seed in seeds]
        subject = make(function, supports=dataclasses.replace(SUPPORTS, backward=False))
        return {(v.check, v.error) for case in cases for v in judge_case(subject, case, PLAN).failures}

    with session(Sanitizer):
        found, control = told(racy), told(lambda p: racy(p, safe=True))

    assert control == set()
    named = (
        {("determinism", "order")}
        if race.name == "sum_in_any_order"
        else {("sanitizer", "race"), ("sanitizer", "double-write")}
    )
    assert found & named


def test_the_orders_of_programs_are_permutations():
    with session() as opened:
        for seed in range(16):
            case = dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, seed=seed))
            with determinism._order(case):
                assert sorted(opened.order(7)) == list(range(7))
                assert list(opened.order(0)) == []
                assert opened.turns is not None
                if seed % 4 == 2:
                    assert sum(a > b for a, b in itertools.pairwise(opened.order(7))) <= 1, "one program is last"
            assert (opened.order, opened.turns) == (None, None)


def test_the_script_counts_wrong_answers_and_stirs_beside_them(monkeypatch):
    monkeypatch.setattr(gpu_races, "LEAD", 1)
    monkeypatch.setattr(gpu_races, "BATCH", 5)
    race = next(race for race in RACES if race.name == "merged_too_early")
    stirred = []
    with session():
        found = gpu_races.until_wrong(race, chain("cpu", 64), 1, 30, safe=False, stir=lambda: stirred.append(1))
        control = gpu_races.wrong_runs(race, chain("cpu", 64), 1, safe=True, stir=None)

    assert found["found"]
    assert found["runs"] == gpu_races.BATCH
    assert stirred
    assert control == 0

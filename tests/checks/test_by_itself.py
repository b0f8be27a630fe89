"""Checks that run another problem leave one that is wrong by itself to `accuracy`, and speak where only the two together are wrong."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.by_itself import remembers, wrong_by_itself
from flashverify.subjects import Contract, Forward
from tests.checks.naive import attention, make
from tests.checks.test_engine import Wrapped

CASE = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=5 seq_k=9 dtype=fp32 klen=4,9 seed=3 backward=no")


def found(subject, check, question, case=CASE):
    result = judge_case(subject, case, Plan(checks=(check,), questions={check: (question,)}))
    return {(v.check, v.output) for v in result.failures}, {v.case for v in result.failures}


def wrong_where(condition):
    """O twice as large where `condition` holds of the problem."""

    def function(p):
        o, lse = attention(p)
        return o * (2.0 if condition(p.case) else 1.0), lse

    return make(function, contract=Contract(deterministic=True, batch_invariant=True))


@pytest.mark.parametrize(
    ("check", "question", "condition"),
    [
        ("reuse", "lengths", lambda case: case.mask.key_lengths == (2, 4)),
        ("reuse", "larger", lambda case: case.seq_k > 18),
        ("determinism", "solo-head", lambda case: case.heads_kv == 1),
        ("determinism", "solo-sequence", lambda case: case.batch == 1),
        ("relations", "appended-keys", lambda case: case.seq_k > 9),
    ],
)
def test_another_problem_that_is_wrong_by_itself_fails_accuracy_with_its_own_case(check, question, condition):
    failing, texts = found(wrong_where(condition), check, question)

    assert failing == {("accuracy", "o")}
    assert [condition(parse_case(text)) for text in texts] == [True]


def test_other_values_that_are_wrong_by_themselves_fail_accuracy():
    def loud(p):
        o, lse = attention(p)
        return o * (2.0 if bool((p.q.abs() > 1e-3).any()) else 1.0), lse

    quiet = dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, regime="tiny"))
    failing, texts = found(make(loud), "reuse", "values", quiet)

    assert failing == {("accuracy", "o")}
    assert "regime" not in texts.pop()


def test_a_mask_that_leaks_only_where_nothing_shows_fails_accuracy_with_telling_values():
    def leaks(p):
        return attention(dataclasses.replace(p, key_lengths=None))

    blank = dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, regime="zeros"))
    failing, texts = found(make(leaks), "counting", "counting", blank)

    assert failing >= {("accuracy", "o")}
    assert {check for check, _ in failing} == {"accuracy"}
    assert "zeros" not in texts.pop()


def test_a_base_that_is_wrong_is_not_compared_with_its_parts_but_repeated():
    def both(problem, result):
        calls.append(1)
        return dataclasses.replace(result, o=result.o * (1.5 if problem.case.batch > 1 else 1.0) * len(calls))

    calls: list[int] = []
    subject = Wrapped(forward=both, inner=make(contract=Contract(deterministic=True, batch_invariant=True)))
    plan = Plan(checks=("accuracy", "determinism"), questions={"determinism": ("repeat", "solo-sequence")})

    assert {(v.check, v.error) for v in judge_case(subject, CASE, plan).failures} == {
        ("accuracy", "bound"),
        ("determinism", "repeat"),
    }


def test_elements_that_nobody_writes_are_a_failure_of_memory_alone():
    class Tail:
        """The small attention, whose last row of O is not written."""

        def __init__(self):
            self.inner = make()
            for name in ("name", "supports", "contract", "form", "device", "evidence", "backward"):
                setattr(self, name, getattr(self.inner, name))

        def forward(self, problem):
            import torch

            result = self.inner.forward(problem)
            o = torch.empty_like(result.o)
            o[:, :, :-1] = result.o[:, :, :-1].detach()
            return Forward(o, result.lse, result.saved)

    plan = Plan(checks=("memory", "determinism", "reuse"), questions={"determinism": ("repeat",), "reuse": ("calls",)})

    assert {v.check for v in judge_case(Tail(), CASE, plan).failures} == {"memory"}


def test_a_subject_that_remembers_is_told_from_one_that_is_wrong():
    kept = {}

    def cached(p):
        return kept.setdefault(p.q.shape, tuple(x.detach() for x in attention(p)))

    other = dataclasses.replace(CASE, values=dataclasses.replace(CASE.values, seed=8))
    subject = make(cached)

    assert not wrong_by_itself(subject, CASE)
    assert wrong_by_itself(subject, other)
    assert remembers(subject, CASE, other)
    assert not remembers(wrong_where(lambda case: case.values.seed == 8), CASE, other)

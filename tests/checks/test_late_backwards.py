"""Backwards that come late: after another forward, or after another backward of the same one."""

import dataclasses

import pytest

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.judge.verdict import Status
from flashverify.subjects import Forward
from tests.checks.naive import SUPPORTS, make
from tests.checks.test_engine import PLAIN, Wrapped
from tests.checks.test_reuse import FreesItsGraph

QUESTIONS = ("forward-between", "another-do", "backward")
LSE_GRADIENT = parse_case("fv1 heads_q=2 heads_kv=1 seq_q=5 seq_k=9 dtype=fp32 seed=3 dlse=yes")


def errors(subject, case=PLAIN, questions=QUESTIONS):
    plan = Plan(checks=("reuse",), questions={"reuse": questions})
    return {v.error for v in judge_case(subject, case, plan).failures}


def with_lse_gradient():
    return make(supports=dataclasses.replace(SUPPORTS, dlse=True))


class OneBuffer(Wrapped):
    """The LSE that a forward saves lies in a buffer of its shape, which the next forward writes again."""

    def __init__(self):
        super().__init__()
        self.buffers = {}

    def forward(self, problem):
        result = self.inner.forward(problem)
        buffer = self.buffers.setdefault(result.lse.shape, result.lse.clone())
        buffer.copy_(result.lse)
        return Forward(result.o, result.lse.clone(), (result, buffer))

    def backward(self, problem, forward):
        result, buffer = forward.saved
        gradients = self.inner.backward(problem, result)
        return dataclasses.replace(gradients, dq=gradients.dq * (forward.lse - buffer).exp().mean())


class KeepsDelta(Wrapped):
    """dQ and dK take delta, here the whole of dO and dLSE, from the first backward of a forward."""

    def backward(self, problem, forward):
        leaves, _, _ = forward.saved
        kept = leaves.setdefault("kept", problem)
        of_kept, own = (self.inner.backward(each, forward) for each in (kept, problem))
        return dataclasses.replace(own, dq=of_kept.dq, dk=of_kept.dk)


@pytest.mark.parametrize("case", [PLAIN, LSE_GRADIENT], ids=["plain", "dlse"])
def test_a_subject_that_keeps_nothing_passes(case):
    result = judge_case(with_lse_gradient(), case, Plan(checks=("reuse",), questions={"reuse": QUESTIONS}))

    assert [v.status for v in result.verdicts] == [Status.PASS]


def test_a_graph_that_the_backward_frees_is_no_failure():
    assert errors(FreesItsGraph()) == set()


def test_a_saved_lse_that_the_next_forward_overwrites_fails():
    assert errors(OneBuffer()) == {"forward-between"}


@pytest.mark.parametrize("case", [PLAIN, LSE_GRADIENT], ids=["plain", "dlse"])
def test_a_delta_that_is_kept_with_a_forward_fails_under_another_do(case):
    assert errors(KeepsDelta(inner=with_lse_gradient()), case) == {"another-do"}


def test_without_a_backward_nothing_is_asked():
    case = dataclasses.replace(PLAIN, grad=dataclasses.replace(PLAIN.grad, backward=False))
    plan = Plan(checks=("reuse",), questions={"reuse": QUESTIONS})

    assert judge_case(make(), case, plan).failures == ()

"""Failures that are asked for without statistics are those that are found with them."""

from __future__ import annotations

import dataclasses

import pytest

from flashverify.case.case import Case, Grad
from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.passes.execution import execute
from flashverify.subjects import load_subject
from flashverify.truth import Truth
from tests.checks.naive import attention, make

CASE = Case(batch=2, heads_q=2, heads_kv=2, seq_q=5, seq_k=7, dim_qk=16, dim_v=16, dtype="fp32")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("wrong", [0.0, 1e-7, 1e-3, float("nan"), float("inf")])
@pytest.mark.parametrize("output", ["o", "lse", "dq", "dk", "dv"])
def test_failures_alone_are_the_failures(wrong, output):
    subject = make()
    execution = execute(subject, materialize(CASE)[0])
    outputs = {name: tensor.clone() for name, tensor in execution.outputs.items()}
    if output not in outputs:
        pytest.skip("a forward")
    outputs[output][0, 0, 0, ...] += wrong
    found = dataclasses.replace(execution, outputs=outputs)
    failures = check_accuracy(subject, found).failures()
    assert check_accuracy(subject, found, statistics=False).failures() == failures
    assert bool(failures) == (not wrong < 1e-5)


@pytest.mark.parametrize("statistics", [True, False])
def test_a_forward_that_no_gradient_follows_is_judged(statistics):
    case = dataclasses.replace(CASE, grad=Grad(backward=False))
    subject = make(lambda p: attention(p, extra=1e-3))
    problem, _ = materialize(case)
    assert problem.do is None
    assert check_accuracy(subject, execute(subject, problem), statistics=statistics).failures()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("output", "wrong", "asked"), [("o", 0.0, 0), ("dq", 1e-3, 1), ("o", float("nan"), 1), ("lse", float("nan"), 1)]
)
def test_gradients_that_are_right_given_o_and_lse_are_not_asked_end_to_end(output, wrong, asked, monkeypatch):
    subject = load_subject("bundled")
    execution = execute(subject, materialize(CASE)[0])
    outputs = {name: tensor.clone() for name, tensor in execution.outputs.items()}
    outputs[output][0, 0, 0, ...] += wrong
    found, calls = dataclasses.replace(execution, outputs=outputs), []
    alone, both = Truth.backward, Truth.in_both_modes
    monkeypatch.setattr(Truth, "backward", lambda truth: calls.append(truth) or alone(truth))
    monkeypatch.setattr(Truth, "in_both_modes", lambda truth, o, lse: calls.append(truth) or both(truth, o, lse))

    check_accuracy(subject, found, statistics=False)
    assert len(calls) == asked
    check_accuracy(subject, found)
    assert len(calls) == asked + 1

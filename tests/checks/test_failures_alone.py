"""Failures that are asked for without statistics are those that are found with them."""

from __future__ import annotations

import dataclasses

import pytest

from flashverify.case.case import Case
from flashverify.case.memory.materialize import materialize
from flashverify.checks.accuracy import check_accuracy
from flashverify.checks.passes.execution import execute
from tests.checks.naive import make

CASE = Case(batch=2, heads_q=2, heads_kv=2, seq_q=5, seq_k=7, dim_qk=16, dim_v=16, dtype="fp32")


@pytest.mark.parametrize("wrong", [0.0, 1e-7, 1e-3, float("nan"), float("inf")])
@pytest.mark.parametrize("output", ["o", "lse", "dv"])
def test_failures_alone_are_the_failures(wrong, output):
    subject = make()
    execution = execute(subject, materialize(CASE)[0])
    outputs = {name: tensor.clone() for name, tensor in execution.outputs.items()}
    if output not in outputs:
        pytest.skip("a forward")
    outputs[output].view(-1)[3] += wrong
    found = dataclasses.replace(execution, outputs=outputs)
    failures = check_accuracy(subject, found).failures()
    assert check_accuracy(subject, found, statistics=False).failures() == failures
    assert bool(failures) == (not wrong < 1e-5)

"""Broken attentions that the checks `memory` and `determinism` turn red."""

import dataclasses
import gc

import pytest
import torch

from flashverify import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.interpreter.memory import Argument
from flashverify.subjects import Contract, load_subject
from flashverify.truth import Truth
from tests.checks.naive import make
from tests.checks.test_engine import PLAIN, Wrapped, failures

SMALL = parse_case("fv1 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp16 alibi=yes dlse=yes")


def test_a_changed_input_fails_memory():
    def forward(problem, result):
        problem.k[0, 0, 0, 0] += 1
        return result

    assert ("memory", "input", "k") in failures(Wrapped(forward=forward), PLAIN, Plan.only("memory", PLAIN))


def test_a_write_beside_an_input_fails_memory():
    def forward(problem, result):
        q = problem.q.data  # a version counter of its own: autograd does not see the write
        q.as_strided((1,), (1,), q.storage_offset() + q.numel()).fill_(1.0)
        return result

    assert ("memory", "guard", "q") in failures(Wrapped(forward=forward), PLAIN, Plan.only("memory", PLAIN))


def test_an_unwritten_row_fails_memory():
    def forward(problem, result):
        o = torch.empty_like(result.o)
        o[:, :, :-1] = result.o[:, :, :-1]
        return dataclasses.replace(result, o=o)

    found = failures(Wrapped(forward=forward), PLAIN)

    assert ("memory", "unwritten", "o") in found
    assert ("nonfinite", "nan", "o") in found


def test_a_write_beside_an_output_fails_memory():
    def forward(problem, result):
        o = torch.empty_like(result.o).copy_(result.o)
        o.as_strided((1,), (1,), o.storage_offset() + o.numel()).fill_(1.0)
        return dataclasses.replace(result, o=o)

    assert any(check == "memory" and error == "guard" for check, error, _ in failures(Wrapped(forward=forward), PLAIN))


def test_a_promised_repeat_that_differs_fails_determinism():
    plan = Plan(checks=("determinism",), questions={"determinism": ("repeat",)})

    assert ("determinism", "repeat", "o") in failures(Wrapped(forward=drifting_far()), PLAIN, plan)


def drifting_far():
    calls = []

    def forward(problem, result):
        calls.append(1)
        return dataclasses.replace(result, o=result.o * (1 + 2.0**-20 * len(calls)))

    return forward


def test_an_unpromised_difference_is_a_warning():
    inner = make(contract=Contract())
    result = judge_case(
        Wrapped(forward=drifting_far(), inner=inner),
        PLAIN,
        Plan(checks=("determinism",), questions={"determinism": ("repeat",)}),
    )

    assert result.failures == ()
    assert result.warnings == ("determinism: repeat differs in o",)


@pytest.mark.parametrize("variant", ["solo-sequence", "solo-head", "permuted"])
def test_a_result_that_depends_on_its_neighbours_fails_determinism(variant):
    def forward(problem, result):
        weight = 1 + 2.0**-21 * (1e3 * problem.q[0, 0].sum()).sin()  # of the first sequence and head of the batch
        return dataclasses.replace(result, o=result.o * weight)

    inner = make(contract=Contract(deterministic=True, batch_invariant=True))
    case = parse_case("fv1 batch=2 heads_q=4 heads_kv=2 seq_q=3 seq_k=3 dtype=fp32")
    plan = Plan(checks=("determinism",), questions={"determinism": (variant,)})

    assert ("determinism", "batch", "o") in failures(Wrapped(forward=forward, inner=inner), case, plan)


def test_nothing_of_a_judged_case_waits_for_a_collection_of_garbage(interpreter):
    subject, kinds = load_subject("bundled"), (Truth, Argument)

    def alive():
        return {id(o) for o in gc.get_objects() if type(o) in kinds}

    judge_case(subject, SMALL, Plan.fuzz(SMALL))  # what is made once
    gc.collect()
    gc.disable()
    try:
        before = alive()
        judge_case(subject, SMALL, Plan.fuzz(SMALL))
        waiting = alive() - before
    finally:
        gc.enable()

    assert not waiting

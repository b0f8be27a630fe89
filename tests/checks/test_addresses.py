"""The check `addresses`: offsets that do not fit 32 bits are found on small tensors, and right kernels are never reported."""

import dataclasses
import re

import pytest
import torch

from flashverify import Supports
from flashverify.case.memory.far.guard import FarOutputs
from flashverify.case.memory.far.problem import far_problem
from flashverify.case.memory.far.strides import FAR_AXES, span
from flashverify.case.memory.materialize import materialize
from flashverify.case.text import parse_case
from flashverify.checks import Plan, judge_case
from flashverify.checks.passes.execution import execute
from flashverify.interpreter import Sanitizer, faithful
from flashverify.interpreter.hooks import interpreting
from flashverify.interpreter.wraps import Wraps
from flashverify.mutants import build_mutant
from flashverify.mutants.bank.memory import MEMORY_BANK
from flashverify.subjects import load_subject
from tests.checks.far_defects import DECODE, DEFECTS, DENSE, FORWARD, KERNELS, PACKED, PAGE, PAGED, TOKENS, written
from tests.fast_tier import fast_one_in


@pytest.fixture(autouse=True)
def _sanitized():
    if not interpreting():
        pytest.skip("kernels are compiled in this process")
    with faithful(Sanitizer):
        yield


def planted(folder, *change, **where):
    return load_subject(written(folder, *change, **where))


def addresses(subject, case, *questions):
    return judge_case(subject, case, Plan(checks=("addresses",), questions={"addresses": questions or FAR_AXES}))


def failures(subject, case, *questions):
    return {(v.check, v.error, v.output) for v in addresses(subject, case, *questions).failures}


@pytest.mark.parametrize("name", fast_one_in(5, DEFECTS))
def test_a_planted_defect_is_found_by_its_question_alone(name, tmp_path):
    question, case, before, after = DEFECTS[name]
    found = addresses(planted(tmp_path, before, after), case, question).failures

    assert {(v.check, v.error) for v in found} == {("addresses", "int32-overflow")}
    assert re.search(r"planted.py:\d+: .* becomes -\d+ in (a cast to )?int32; stretched: ", found[0].message)


@pytest.mark.parametrize("name", fast_one_in(2, ("attend", "attend_packed", "paged_decode")))
def test_right_kernels_are_examined_by_every_question_and_not_reported(name):
    source, case = {"attend": (KERNELS, DENSE), "attend_packed": (KERNELS, PACKED), "paged_decode": (DECODE, PAGED)}[
        name
    ]
    result = judge_case(load_subject(f"{source}:{name}"), case, Plan(checks=("accuracy", "addresses")))

    assert [v.status.value for v in result.verdicts] == ["pass", "pass"]
    assert result.warnings == ()


def test_the_product_of_a_cumulative_length_and_a_stride_is_found(tmp_path):
    kernel = planted(tmp_path, *TOKENS, name="attend_packed")

    assert failures(kernel, PACKED, "row") == {("addresses", "int32-overflow", name) for name in ("k_ptr", "v_ptr")}


def test_the_product_of_a_page_and_its_stride_is_found(tmp_path):
    kernel = planted(tmp_path, *PAGE, source=DECODE, name="paged_decode")

    assert failures(kernel, PAGED, "page") == {("addresses", "int32-overflow", name) for name in ("k_ptr", "v_ptr")}
    assert failures(kernel, PAGED, "batch") == set()


def test_a_narrowed_pointer_of_the_bundled_kernels_is_found(tmp_path):
    (mutant,) = (m for m in MEMORY_BANK if m.name == "offset_in_32_bits")

    found = failures(load_subject(build_mutant(mutant, tmp_path)), FORWARD, "batch")
    assert found == {("addresses", "int32-overflow", name) for name in ("q_view", "k_view", "v_view")}


@pytest.mark.parametrize(("question", "axis"), [("batch", 0), ("head", 1)])
def test_the_bundled_kernels_copy_nothing_that_they_allocate(question, axis):
    problem, guarding, wraps = far_problem(materialize(DENSE)[0], question), FarOutputs(axis), Wraps()

    found = execute(load_subject("bundled"), problem, guarding=guarding, wraps=wraps).outputs

    assert (guarding.copied, wraps.found, wraps.strays, wraps.own_strays) == (False, {}, 0, 0)
    assert span(found["dq"].shape, found["dq"].stride()) > 2**31


def test_a_kernel_that_does_not_follow_its_strides_is_not_accused_and_says_so(tmp_path):
    kernel = planted(tmp_path, "q_at = b * q_batch", "q_at = b * rows * q_row * 3")
    result = addresses(kernel, FORWARD, "batch")

    assert result.failures == ()
    assert result.warnings == (
        "addresses: stretched: the stride of the batch axis: not examined, a kernel does not follow the strides that it is given",
    )


def test_memory_of_a_subject_that_must_be_contiguous_is_left_alone(tmp_path):
    kernel = planted(tmp_path, "lse_batch + h * lse_head + first_q + i", "tl.num_programs(1) * rows + h * rows + i")

    assert addresses(kernel, FORWARD).failures == addresses(kernel, FORWARD).warnings == ()


ALGORITHMS = ("two-pass", "standard", "paper-flash", "paper-block-sparse", "rabe-staats")


@pytest.mark.parametrize("name", fast_one_in(len(ALGORITHMS), ALGORITHMS))
def test_a_subject_that_copies_its_own_memory_where_it_is_not_contiguous_is_not_accused(name):
    case = parse_case("fv1 batch=3 seq_q=5 seq_k=5 dim_qk=8 dim_v=8 dtype=fp32 seed=191 backward=no")

    assert addresses(load_subject(name), case, "batch", "row").failures == ()


def test_a_wrong_value_in_copied_memory_is_a_failure_all_the_same():
    kernel = load_subject(f"{KERNELS}:attend")
    forward = kernel.function

    def copying(p):
        o, lse = forward(p)
        other = torch.empty_like(p.v).contiguous().copy_(o)
        return (other * 1.5 if p.q.stride(0) > 2**20 else other), lse

    assert failures(dataclasses.replace(kernel, function=copying), FORWARD, "batch") == {
        ("addresses", "far-values", "o")
    }


def test_a_refusal_of_huge_strides_is_told_and_is_no_failure():
    kernel = load_subject(f"{KERNELS}:attend")
    forward = kernel.function

    def checked(p):
        if p.q.stride(0) > 2**20:
            raise ValueError("strides are too large")
        return forward(p)

    result = addresses(dataclasses.replace(kernel, function=checked), FORWARD, "batch")
    assert result.failures == ()
    assert result.warnings == (
        "addresses: stretched: the stride of the batch axis: not examined, ValueError: strides are too large",
    )


def test_a_wrong_value_in_huge_strides_alone_is_a_failure():
    kernel = load_subject(f"{KERNELS}:attend")
    forward = kernel.function

    def other(p):
        o, lse = forward(p)
        return (o * 1.5 if p.q.stride(0) > 2**20 else o), lse

    assert failures(dataclasses.replace(kernel, function=other), FORWARD, "batch") == {("addresses", "far-values", "o")}


def test_a_subject_declares_that_it_takes_no_such_strides():
    kernel = dataclasses.replace(load_subject(f"{KERNELS}:attend"), supports=Supports(far_strides=False))

    assert {v.check for v in addresses(kernel, FORWARD, "batch").verdicts} == set()
    assert Supports(contiguous=True).far_strides is False

"""The exceptions of torch, Triton and Python that say what a subject lacks are recognised as they are raised here."""

import importlib

import pytest
import torch

import flashverify
from flashverify import Supports, parse_case
from flashverify.checks import Plan, judge_case
from flashverify.subjects.inability import FORWARD_ONLY, NO_GPU, NO_PACKAGE, inability_of

CASE, FORWARD = parse_case("fv1 seq_q=3 seq_k=4 dtype=fp32"), parse_case("fv1 seq_q=3 seq_k=4 dtype=fp32 backward=no")
NEEDS_NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def found(function):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function()
    kind = type(caught.value).__name__
    return inability_of(kind, f"{kind}: {caught.value}")


@NEEDS_NO_GPU
def test_torch_without_a_gpu():
    assert found(lambda: torch.zeros(1, device="cuda")) is NO_GPU


@NEEDS_NO_GPU
def test_triton_without_a_driver():
    triton = pytest.importorskip("triton")
    assert found(lambda: triton.runtime.driver.active.get_current_device()) is NO_GPU


def test_a_package_that_is_not_installed():
    assert found(lambda: importlib.import_module("flashverify_of_tomorrow")) is NO_PACKAGE


def test_autograd_over_a_constant():
    assert found(lambda: torch.autograd.grad(torch.ones(1), torch.ones(1, requires_grad=True))) is FORWARD_ONLY


@pytest.mark.parametrize("message", ["ValueError: head dim 24", "AssertionError: ", "OutOfResources: shared memory"])
def test_other_exceptions_are_about_the_kernel(message):
    assert inability_of(message.partition(":")[0], message) is None


@flashverify.subject(supports=Supports(dtypes=("fp32",)), device="cpu")
def detached(p):
    with torch.no_grad():
        logits = p.q @ p.k.mT * p.scale
        return logits.softmax(-1) @ p.v, logits.logsumexp(-1)


def test_a_function_that_promises_no_gradients_is_asked_for_none():
    made = flashverify.subject(
        supports=Supports(dtypes=("fp32",)), contract=flashverify.Contract(gradients=frozenset()), device="cpu"
    )
    group = made(detached.function)
    wrong = made(lambda p: tuple(x * 1.01 for x in detached.function(p)))

    assert group.supports.refusal(CASE) == "backward=yes"
    assert not flashverify.judge_case(group, FORWARD).failures
    assert {v.output for v in judge_case(wrong, FORWARD, Plan.only("accuracy", FORWARD)).failures} == {"o", "lse"}


def test_a_backward_of_which_nothing_is_promised_is_refused():
    with pytest.raises(flashverify.UsageError, match=r"Contract\(gradients=frozenset\(\)\): name what it returns"):
        flashverify.subject(contract=flashverify.Contract(gradients=frozenset()), backward=lambda p, f: None)


def test_a_function_without_gradients_is_told_how_to_declare_that():
    (verdict,) = judge_case(detached, CASE, Plan.only("memory", CASE)).failures

    assert (
        "returned an O that autograd cannot differentiate. Declare supports=Supports(backward=False)" in verdict.message
    )
    assert inability_of(verdict.output, verdict.message) is FORWARD_ONLY
    assert not judge_case(detached, FORWARD, Plan.only("memory", FORWARD)).failures

"""What goes the ordinary way, beside plans of calls like it."""

import pytest
import torch

from flashverify_kernels import Options, backward, forward, plans
from tests.kernels.plans.launches import Kernel, tensors, ways


def test_a_tensor_of_another_class_has_no_plan(log):
    class Other(torch.Tensor):
        pass

    for _ in range(3):
        forward(*(x.as_subclass(Other) for x in tensors()))

    assert ways(log) == {"ordinary"}


def test_a_misaligned_output_goes_the_ordinary_way(log, monkeypatch):
    count = []

    def misaligned(like):
        def make():
            count.append(like)
            return torch.empty(like.numel() + 1, dtype=like.dtype)[1:].view(like.shape)

        return make

    monkeypatch.setattr(plans, "maker", misaligned)
    forward(*tensors())
    log.clear()
    forward(*tensors())

    assert count
    assert ways(log) == {"ordinary"}


def test_a_hook_of_the_kernel_goes_the_ordinary_way(log, monkeypatch):
    forward(*tensors())
    log.clear()
    monkeypatch.setattr(Kernel, "pre_run_hooks", (print,))
    forward(*tensors())

    assert ways(log) == {"ordinary"}


def test_a_gradient_that_no_launch_writes_has_no_plan(log):
    q, k, v = tensors()
    options = Options(sink=torch.ones(4))
    o, lse2 = forward(q, k, v, options)
    log.clear()
    for _ in range(3):
        backward(o, q, k, v, o, lse2, options)

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_somebody_who_watches_launches_sees_them(log, monkeypatch, hook):
    forward(*tensors())
    log.clear()
    monkeypatch.setattr(getattr(plans.knobs.runtime, hook), "calls", [print])
    forward(*tensors())

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize(("place", "value"), [((plans, "_OWN"), False), ((plans.JITFunction, "run"), print)])
def test_a_copy_and_another_run_of_launches_have_none(log, monkeypatch, place, value):
    forward(*tensors())
    log.clear()
    monkeypatch.setattr(*place, value)
    forward(*tensors())

    assert ways(log) == {"ordinary"}

"""Autograd is what it is without plans: planned calls see which gradients are wanted, and what was changed in between."""

import pytest
import torch

from flashverify_kernels import attention, backward, forward, plans
from tests.kernels.plans.launches import Kernel, tensors, ways


@pytest.fixture
def inputs(log):
    """Of calls that have plans in both directions."""
    given = [x.requires_grad_() for x in tensors()]
    for _ in range(3):
        torch.autograd.grad(attention(*given), given, torch.zeros(2, 4, 40, 64, dtype=torch.float16))
    log.clear()
    return given


def kernels(log):
    return len([entry for entry in log if entry[0] == "planned"])


def test_both_directions_need_no_key(log, inputs, monkeypatch):
    monkeypatch.setattr(plans, "key_of_tensors", None)
    found = torch.autograd.grad(attention(*inputs), inputs, torch.zeros_like(inputs[0]))

    assert ways(log) == {"planned"}
    assert [x.shape for x in found] == [x.shape for x in inputs]


@pytest.mark.parametrize(("wanted", "launches"), [((0,), 3), ((1, 2), 3), ((0, 1, 2), 4)])
def test_only_gradients_that_are_wanted_are_computed(log, inputs, wanted, launches):
    given = [x.detach().requires_grad_(n in wanted) for n, x in enumerate(inputs)]
    leaves = [given[n] for n in wanted]
    do = torch.zeros_like(given[0])
    for _ in range(3):
        log.clear()
        attention(*given).backward(do)

    assert kernels(log) == launches
    assert all((x.grad is None) == (n not in wanted) for n, x in enumerate(given))
    assert all(x.grad.shape == x.shape for x in leaves)


@pytest.mark.parametrize("number", range(3))
def test_an_input_that_changed_in_between_is_noticed(log, inputs, number):
    given = [x * 1 for x in inputs]
    o = attention(*given)
    given[number].add_(1)
    log.clear()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.backward(torch.zeros_like(o))

    assert not log


def test_an_output_that_changed_in_between_is_noticed(log, inputs):
    o = attention(*inputs)
    o.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.backward(torch.zeros_like(o))


def test_gradients_are_not_differentiated(log, inputs):
    do = torch.zeros_like(inputs[0]).requires_grad_()
    (dq,) = torch.autograd.grad(attention(*inputs), inputs[:1], do, create_graph=True)
    assert ways(log) == {"planned"}
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_a_graph_is_passed_through_once_unless_it_is_kept(log, inputs):
    o = attention(*inputs)
    do = torch.zeros_like(o)
    for kept in (True, False):
        o.backward(do, retain_graph=kept)
    assert ways(log) == {"planned"}
    with pytest.raises(RuntimeError, match="second time"):
        o.backward(do)


def test_saved_tensors_that_come_back_with_other_strides_have_another_plan(log, inputs):
    def unpack(x):
        return x.transpose(1, 2).contiguous().transpose(1, 2) if x.dim() == 4 else x

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
        o = attention(*inputs)
    log.clear()
    o.backward(torch.zeros_like(o))

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize(
    "change", [lambda x: x.float(), lambda x: x[:, :, :-1], lambda x: x[:, :2].repeat(1, 2, 1, 1)[:, ::1, ::2]]
)
def test_a_gradient_of_o_of_another_kind_is_refused_as_before(log, inputs, change):
    given = [x.detach() for x in inputs]
    o, lse2 = forward(*given)
    for _ in range(3):
        backward(o, *given, o, lse2)
    log.clear()
    with pytest.raises((TypeError, ValueError), match="do: expected"):
        backward(change(o), *given, o, lse2)

    assert not log


def test_a_gradient_of_o_of_another_layout_has_another_plan(log, inputs):
    o = attention(*inputs)
    log.clear()
    o.backward(torch.zeros(2, 40, 4, 64, dtype=torch.float16).transpose(1, 2))

    assert ways(log) == {"ordinary"}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((plans, "_off"), 1),
        ((plans, "_OWN"), False),
        ((plans.JITFunction, "run"), print),
        ((plans, "_modes"), lambda: 1),
        ((plans.knobs.runtime.launch_enter_hook, "calls"), [print]),
        ((plans.knobs.runtime.launch_exit_hook, "calls"), [print]),
        ((Kernel, "pre_run_hooks"), (print,)),
    ],
)
def test_whoever_watches_sees_both_directions(log, inputs, monkeypatch, place, value):
    monkeypatch.setattr(*place, value)
    torch.autograd.grad(attention(*inputs), inputs, torch.zeros_like(inputs[0]))
    attention(*(x.detach() for x in inputs))

    assert ways(log) == {"ordinary"}


def test_options_reach_the_plan_of_both_directions(log, inputs):
    do = torch.zeros_like(inputs[0])
    for options in ({"causal": "top-left"}, {"causal": "bottom-right"}, {"scale": 0.5}):
        log.clear()
        torch.autograd.grad(attention(*inputs, **options), inputs, do)
        assert ways(log) == {"ordinary"}

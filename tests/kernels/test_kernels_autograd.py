"""What a call of `attention` leaves out where nobody differentiates it, and that nothing which is differentiated is left out."""

import dataclasses

import pytest
import torch
from torch.autograd import forward_ad

from flashverify_kernels import attention
from flashverify_kernels.options import DecodeOptions, Options


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 2, 5, 16, generator=generator) for _ in "qkv")


def test_a_call_that_nobody_differentiates_has_the_bits_of_one_that_somebody_does(inputs):
    watched = tuple(x.clone().requires_grad_() for x in inputs)
    o, lse = attention(*watched, causal="top-left", return_lse=True)
    assert o.grad_fn is not None
    assert lse.grad_fn is not None

    with torch.no_grad():
        unwatched = attention(*watched, causal="top-left", return_lse=True)
    for found in (unwatched, attention(*inputs, causal="top-left", return_lse=True)):
        assert all(x.grad_fn is None for x in found)
        assert torch.equal(found[0], o)
        assert torch.equal(found[1], lse)
    assert torch.equal(attention(*inputs, causal="top-left"), o)


def test_gradients_do_not_depend_on_whether_the_lse_is_returned(inputs):
    found = []
    for with_lse in (True, False):
        watched = tuple(x.clone().requires_grad_() for x in inputs)
        o = attention(*watched, return_lse=True)[0] if with_lse else attention(*watched)
        found.append(torch.autograd.grad(o.square().sum(), watched))

    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["bias", "sink"])
def test_a_learned_tensor_alone_is_differentiated(inputs, name):
    learned = (torch.zeros(1, 1, 5, 5) if name == "bias" else torch.zeros(2)).requires_grad_()
    o = attention(*inputs, **{name: learned})

    (gradient,) = torch.autograd.grad(o.sum(), (learned,))
    assert gradient.abs().max() > 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of torch, at the first dual number
def test_a_derivative_in_forward_mode_is_refused_and_not_dropped(inputs):
    q, k, v = inputs
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp"):
        attention(forward_ad.make_dual(q, torch.ones_like(q)), k, v)


def test_a_transform_of_functions_is_refused_as_by_every_function_of_autograd_without_one(inputs):
    q, k, v = inputs
    with pytest.raises(RuntimeError, match=r"functorch|setup_context"):
        torch.func.vmap(lambda x: attention(x, k, v))(q[None])


def test_a_tensor_that_a_transform_of_functions_left_behind_is_differentiated_as_what_it_wraps(inputs):
    q, k, v = inputs
    left = []
    q.requires_grad_()
    torch.func.grad(lambda x: left.append(x) or x.sum())(q)
    (expected,) = torch.autograd.grad(attention(q, k, v).square().sum(), (q,))
    (found,) = torch.autograd.grad(attention(left[0], k, v).square().sum(), (q,))

    assert torch.equal(found, expected)


@pytest.mark.parametrize("return_lse", [True, False])
def test_gradients_are_not_differentiated_again(inputs, return_lse):
    watched = tuple(x.clone().requires_grad_() for x in inputs)
    o = attention(*watched, return_lse=return_lse)
    (gradient,) = torch.autograd.grad((o[0] if return_lse else o).square().sum(), watched[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


@pytest.mark.parametrize("kind", [Options, DecodeOptions])
def test_options_of_a_call_are_those_of_the_constructor(kind):
    given = {"causal": "top-left", "scale": 0.5, "layout": "bshd"}
    made, usual = kind.of(given), kind(**given)

    for field in dataclasses.fields(kind):
        assert getattr(made, field.name) is getattr(usual, field.name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.scale = 1.0
    assert dataclasses.replace(made, scale=2.0).causal == "top-left"

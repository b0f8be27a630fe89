"""Shapes, orders, concatenation and decisions on NaN are in lockstep what they are for one program."""

import pytest
import torch
import triton
import triton.language as tl

from tests.interpreter.test_interpreter_lockstep import thrice


@triton.jit
def shapes(x_ptr, out_ptr):
    p = tl.program_id(0)
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + p * 16 + i)
    square = tl.reshape(x, (4, 4))
    low, high = tl.split(tl.reshape(x, (8, 2)))
    out = out_ptr + p * 144
    tl.store(out + i, tl.reshape(tl.trans(square), (16,)))
    tl.store(out + 16 + i, tl.reshape(tl.join(high, low), (16,)))
    tl.store(out + 32 + i, tl.interleave(low, high))
    tl.store(out + 48 + i, tl.gather(x, 15 - i, 0))
    tl.store(out + 64 + i, tl.reshape(tl.permute(tl.reshape(x, (2, 4, 2)), (1, 2, 0)), (16,)))
    tl.store(out + 80 + i, tl.reshape(square + tl.sum(square, 1, keep_dims=True), (16,)))
    tl.store(out + 96 + i, tl.sum(tl.broadcast_to(x[:, None] * i[None, :], (16, 16)), 0))
    tl.store(out + 112 + i, tl.reshape(square.T, (16,)) + tl.max(square))
    tl.store(out + 128 + i, tl.flip(x, 0) + tl.sort(x))


def test_shapes_and_orders():
    x, out = torch.randn(80, generator=torch.Generator().manual_seed(2)), torch.zeros(5 * 144)

    assert not thrice(lambda x, out: shapes[(5,)](x, out), x, out).fallbacks


@triton.jit
def one_after_the_other(x_ptr, out_ptr):
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + p * 8 + i)
    tl.store(out_ptr + p * 16 + tl.arange(0, 16), tl.cat(x, i.to(tl.float32), can_reorder=True))


@pytest.mark.filterwarnings("ignore:tl.cat")
def test_concatenation():
    x, out = torch.randn(40, generator=torch.Generator().manual_seed(2)), torch.zeros(80)

    assert not thrice(lambda x, out: one_after_the_other[(5,)](x, out), x, out).fallbacks


@triton.jit
def truth(x_ptr, out_ptr):
    p = tl.program_id(0)
    if tl.load(x_ptr + p):
        tl.store(out_ptr + p, 1.0)


@pytest.mark.parametrize("values", [[torch.nan] * 4, [torch.nan, 0.0, 3.0, torch.inf]])
def test_a_decision_on_nan(values):
    opened = thrice(lambda x, out: truth[(4,)](x, out), torch.tensor(values), torch.zeros(4))

    assert not opened.fallbacks
    assert opened.attempts <= 3

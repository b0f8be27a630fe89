"""Kernels that share a function, and one that does not call it: for the tests of exchanged functions."""

import torch
import triton
import triton.language as tl

from flashverify.interpreter import active, watch

N = 8


@triton.jit
def moved(x):
    return x + 1.0


@triton.jit
def twice_moved(x):
    return moved(moved(x))


@triton.jit
def first(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, moved(tl.load(x + at)))


@triton.jit
def second(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, twice_moved(tl.load(x + at)))


@triton.jit
def alone(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * 3.0)


def value(kernel, x=4.0, *, kept=None, known=None):
    """What a kernel makes of a number, and whether the launch ran."""
    session = active()
    before = session.attempts + session.fallbacks.total()
    given, out = torch.full((N,), x), torch.zeros(N)
    with watch(inputs={given.untyped_storage().data_ptr()}, poison=lambda _: None, kept=kept, known=known):
        kernel[(1,)](given, out, N=N)
    assert bool((out == out[0]).all())
    return float(out[0]), session.attempts + session.fallbacks.total() > before

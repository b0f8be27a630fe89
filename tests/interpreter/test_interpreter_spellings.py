"""Functions of libdevice, and what a kernel is told that was written for an earlier release of Triton."""

import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.errors import InterpreterError

from flashverify.interpreter import session


@triton.jit
def squashed(x):
    return libdevice.tanh(x)


@triton.jit
def functions(x, y, N: tl.constexpr):
    n = tl.program_id(0) * N + tl.arange(0, N)
    values = tl.load(x + n)
    found = tl.where(libdevice.isnan(values), 7.0, squashed(values) + libdevice.pow(2.0, libdevice.rint(values)))
    tl.extra.cuda.gdc_wait()
    tl.store(y + n, found)


@pytest.mark.parametrize("lockstep", [True, False])
def test_functions_of_libdevice_are_computed(lockstep):
    x, y = torch.tensor([0.3, -2.5, 3.5, float("nan"), 1.0, 0.0, -0.5, 2.0]), torch.zeros(8)
    with session(lockstep=lockstep) as opened:
        functions[(2,)](x, y, N=4)
        functions[(2,)](x, y, N=4)

    expected = torch.where(x.isnan(), 7.0, x.tanh() + torch.exp2(x.round()))
    assert torch.allclose(y, expected, rtol=4 * np.finfo(np.float32).eps, atol=0)
    assert not opened.fallbacks


@triton.jit
def transposed_b(x, y, N: tl.constexpr):
    n = tl.arange(0, N)
    tile = tl.load(x + n[:, None] * N + n[None, :])
    tl.store(y + n[:, None] * N + n[None, :], tl.dot(tile, tile, trans_b=True))


@triton.jit
def old_inner(x):
    return tl.math.tanh(x)


@triton.jit
def old_math(x, y, N: tl.constexpr):
    n = tl.arange(0, N)
    tl.store(y + n, old_inner(tl.load(x + n)))


@triton.jit
def old_library(x, y, N: tl.constexpr):
    n = tl.arange(0, N)
    tl.store(y + n, tl.libdevice.tanh(tl.load(x + n)))


@triton.jit
def old_descriptor(x, y, N: tl.constexpr):
    tl.store(y, tl._experimental_descriptor_load(x, [0], [N], tl.float32))


@pytest.mark.parametrize(
    ("kernel", "advice"),
    [
        (transposed_b, "write tl.dot(a, tl.trans(b)) for tl.dot(a, b, trans_b=True)"),
        (old_math, "write `from triton.language.extra import libdevice` and libdevice.tanh for tl.math.tanh"),
        (old_library, "and libdevice.NAME for tl.libdevice.NAME"),
        (old_descriptor, "take a descriptor of `tl.make_tensor_descriptor`"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_old_spelling_is_told_the_new_one(kernel, advice):
    said = f"Triton {triton.__version__} has not what this kernel was written for: "
    with session(), pytest.raises(InterpreterError, match=re.escape(said) + ".*" + re.escape(advice)):
        kernel[(1,)](torch.zeros(16, 16), torch.zeros(16, 16), N=16)


@triton.jit
def mistaken(x):
    tl.store(x, undefined_name)  # noqa: F821


def test_another_exception_is_told_as_it_is():
    with session(), pytest.raises(InterpreterError, match=r"^NameError\("):
        mistaken[(1,)](torch.zeros(1))


@triton.jit
def rounded(x, y, N: tl.constexpr):
    n = tl.arange(0, N)
    tl.store(y + n, libdevice.round(tl.load(x + n)))


def test_halves_round_away_from_zero_and_nothing_else_does():
    x = torch.tensor([0.5, -2.5, 0.49999997, 8388609.0, -0.2, 1.5, -0.49999997, 0.0])
    y = torch.empty(8)
    with session():
        rounded[(1,)](x, y, N=8)

    assert y.tolist() == [1.0, -3.0, 0.0, 8388609.0, -0.0, 2.0, -0.0, 0.0]
    assert y.signbit().tolist() == x.signbit().tolist()

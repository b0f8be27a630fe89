"""Tuples with names of launches, made once for equal numbers: what tells them apart, and that nothing of a launch stays in them."""

import gc
import math
import weakref
from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import session
from flashverify.interpreter.records import contents


class Inner(NamedTuple):
    ptr: object
    step: object


class Outer(NamedTuple):
    number: object
    inner: Inner
    rest: object


@triton.jit
def kernel(given: Outer, out_ptr):
    tl.store(out_ptr, tl.load(given.inner.ptr + given.inner.step) + given.number)
    if given.rest is not None:
        tl.store(out_ptr + 1, given.rest)


def key_of(value):
    found, tensors = [], []
    return (tuple(found), tensors) if contents(value, found, tensors) else None


def test_equal_numbers_of_other_types_and_signs_are_told_apart():
    numbers = (0, False, 0.0, -0.0, 1, True, 1.0, None, math.nan, math.inf, "0x0.0p+0")
    keys = {key_of(Outer(number, Inner(None, 1), 2))[0] for number in numbers if not isinstance(number, str)}

    assert len(keys) == len(numbers) - 1
    assert key_of(Outer(numbers[-1], Inner(None, 1), 2)) is None
    assert key_of(Outer(math.nan, Inner(None, 1), 2)) == key_of(Outer(math.nan, Inner(None, 1), 2))


def test_tuples_of_other_shapes_and_dtypes_are_told_apart():
    x, half = torch.zeros(3), torch.zeros(3, dtype=torch.float16)
    values = (
        Outer(1, Inner(x, 1), 2),
        Outer(1, Inner(half, 1), 2),
        Outer(1, Inner(1, x), 2),
        Outer(Inner(1, x), 1, 2),
        Inner(1, Inner(x, 1)),
        Inner(Inner(1, x), 1),
    )
    assert len({key_of(value)[0] for value in values}) == len(values)
    assert key_of(values[0])[1] == [x]
    assert key_of(values[0])[0] == key_of(Outer(1, Inner(torch.ones(5), 1), 2))[0]
    assert key_of(Outer(1, (x, 1), 2)) is None
    assert key_of((1, x)) is None


@pytest.mark.parametrize("lockstep", [False, True])
def test_every_launch_has_its_own_tensors_and_the_numbers_that_it_was_given(lockstep):
    given = [(1, 0, None), (1, 0, None), (1, 1, None), (1.0, 1, 5.0), (1.5, 1, 5.0), (1.5, 1, -0.0), (1.5, 1, 0.0)]
    with session(lockstep=lockstep) as opened:
        for n, (number, step, rest) in enumerate(given):
            x, out = torch.tensor([10.0 + n, 20.0 + n]), torch.full((2,), 7.0)
            kernel[(1,)](Outer(number, Inner(x, step), rest), out)

            expected = torch.stack([x[step] + number, torch.tensor(7.0 if rest is None else rest)])
            assert torch.equal(out.view(torch.int32), expected.view(torch.int32))
        assert not opened.fallbacks


def test_no_tensor_of_a_launch_is_kept():
    with session():
        x, out = torch.ones(2), torch.zeros(2)
        kernel[(1,)](Outer(1, Inner(x, 0), None), out)
        kernel[(1,)](Outer(1, Inner(x, 0), None), out)
        kept = weakref.ref(x)
        del x
        gc.collect()

        assert kept() is None

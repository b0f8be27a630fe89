"""All programs at once give what one at a time gives, or the launch goes on one at a time."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flashverify.interpreter import session
from flashverify.interpreter.hooks import InterpreterBuilder, handle
from flashverify.interpreter.layer import Unsupported
from flashverify.interpreter.lockstep import _ANY_SHAPE, _ELEMENTWISE, Lockstep


def thrice(launch, *tensors, stock_run=lambda function: function(), **options):
    """The tensors are the same after a stock run, a session that runs one program at a time and one in lockstep; the latter."""

    def launched():
        copies = [t.clone() for t in tensors]
        launch(*copies)
        return copies

    results = [stock_run(launched)]
    for lockstep in (False, True):
        with session(lockstep=lockstep, **options) as opened:
            results.append(launched())
    first, *others = (x for x in results if x is not None)
    for other in others:
        assert all(torch.equal(a.nan_to_num(nan=-7), b.nan_to_num(nan=-7)) for a, b in zip(first, other, strict=True))
    return opened


@triton.jit
def collatz(n):
    steps = 0
    while n != 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    return steps


@triton.jit
def diverging(x_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    i = p * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(x_ptr + i, x + 1)  # in place, before the ways part
    if p % 3 == 0:
        y = x * 2
    else:
        for k in range(p):
            x += k
        y = x
    tl.store(out_ptr + i, y + tl.load(x_ptr + i) + collatz(p + 1))


def test_programs_that_go_different_ways(stock_run):
    x, out = torch.arange(64).float(), torch.zeros(64)

    opened = thrice(lambda x, out: diverging[(8,)](x, out, N=8), x, out, stock_run=stock_run)

    assert not opened.fallbacks
    assert opened.attempts > opened.launches


@triton.jit
def in_place_then_atomic(x_ptr, total_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(x_ptr + i, tl.load(x_ptr + i) + 1)
    tl.atomic_add(total_ptr + tl.arange(0, N) * 0, tl.load(x_ptr + i))


@triton.jit
def _product(a, b):
    return a * b + 1


@triton.jit
def own_functions(x_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    x = tl.load(x_ptr + p * N + tl.arange(0, N))
    tl.store(out_ptr + p * N + tl.arange(0, N), tl.associative_scan(x, 0, _product))
    tl.store(out_ptr + p * N, tl.reduce(x, 0, _product))


@triton.jit
def counts(x_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    x = tl.load(x_ptr + p * N + tl.arange(0, N))
    tl.store(out_ptr + p * N + tl.arange(0, N), tl.histogram(x.to(tl.int32), N).to(tl.float32))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (in_place_then_atomic, "create_atomic_rmw"),
        (own_functions, "a scan with a function of its own"),
        (counts, "create_histogram"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_not_known_to_be_right_runs_one_program_at_a_time(kernel, reason):
    x, out = torch.arange(32).float() % 8, torch.zeros(32)

    opened = thrice(lambda x, out: kernel[(4,)](x, out, N=8), x, out)

    assert dict(opened.fallbacks) == {(kernel.__name__, f"Unsupported: {reason}"): 1}


@triton.jit
def through_descriptor(desc, out_ptr):
    p = tl.program_id(0)
    tile = desc.load([p * 8, 0])
    tl.store(out_ptr + p * 128 + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :], tile)


def test_descriptors_run_in_lockstep_and_as_in_stock():
    x, out = torch.randn(32, 16, generator=torch.Generator().manual_seed(0)), torch.zeros(32, 16)

    def launch(x, out):
        through_descriptor[(4,)](TensorDescriptor(x, list(x.shape), [16, 1], [8, 16]), out)

    assert not thrice(launch, x, out).fallbacks


def test_every_operation_is_listed_or_refused():
    listed = {*_ELEMENTWISE, *_ANY_SHAPE}
    for name in dir(InterpreterBuilder):
        if name.startswith("create_") and name not in listed:
            assert name in vars(Lockstep), name
    with pytest.raises(Unsupported):
        Lockstep.create_histogram(None)


@triton.jit
def grid_places(out_ptr, absent_ptr, PARTS: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (x * tl.num_programs(1) + y) * tl.num_programs(2) + z
    value = x * 100 + y * 10 + z
    for part in tl.static_range(PARTS):
        value += part
    if absent_ptr is not None:
        value = -value
    tl.store(out_ptr + at, value)


@pytest.mark.parametrize("grid", [(2, 3, 4), (3, 1, 2), (1, 4), (1,)])
def test_grids(grid):
    out = torch.zeros(24, dtype=torch.int32)

    assert not thrice(lambda out: grid_places[grid](out, None, PARTS=3), out).fallbacks


@triton.jit
def last_writer(out_ptr, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, N), tl.program_id(0) + tl.arange(0, N) * 0)


@triton.jit
def doubled(x_ptr, out_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i))


@pytest.mark.parametrize("kernel", [doubled, diverging], ids=lambda kernel: kernel.__name__)
def test_memory_bounds_the_programs_that_run_together(kernel, stock_run):
    x, out = torch.arange(64).float(), torch.zeros(64)

    narrow = thrice(lambda x, out: kernel[(8,)](x, out, N=8), x, out, stock_run=stock_run, limit=16)

    assert narrow.attempts == 5 if kernel is doubled else narrow.attempts > 5  # the first one holds too many
    assert not narrow.fallbacks


def test_programs_run_in_the_order_asked_for():
    for lockstep in (True, False):
        for limit in (1 << 18, 32):
            for order, last in ((None, 6), (lambda count: np.arange(count)[::-1], 0)):
                out = torch.zeros(16, dtype=torch.int32)
                with session(lockstep=lockstep, order=order, limit=limit):
                    last_writer[(7,)](out, N=16)

                assert (out == last).all()


@triton.jit
def failing(x_ptr):
    p = tl.program_id(0)
    tl.store(x_ptr + p, 1.0)
    if p > 1:
        tl.arange(0, 3)


def test_an_exception_comes_from_the_program_that_raises_it():
    for lockstep in (True, False):
        x = torch.zeros(4)
        with session(lockstep=lockstep), pytest.raises(Exception, match="power of 2"):
            failing[(4,)](x)

        assert x.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_operands_of_different_rank_are_never_combined():
    with session() as opened:
        b = opened.builder
        b.__class__ = opened.lockstep_class
        four, square = handle(np.ones(4, np.float32), tl.float32), handle(np.ones((4, 4), np.float32), tl.float32)
        for combine in (
            lambda: b.create_fadd(four, square),
            lambda: b.create_fma(four, square, square),
            lambda: b.create_select(four, square, square),
            lambda: b.create_addptr(handle(np.ones(4, np.uint64), tl.pointer_type(tl.float32)), square),
        ):
            with pytest.raises(Unsupported):
                combine()


def test_a_launch_that_is_repeated_begins_with_the_groups_of_the_last_one():
    with session() as opened:
        attempts = []
        for _ in range(3):
            x, out = torch.arange(64).float(), torch.zeros(64)
            before = opened.attempts
            diverging[(8,)](x, out, N=8)
            attempts.append(opened.attempts - before)
            assert torch.equal(x, torch.arange(64).float() + 1)
        assert attempts[0] > attempts[1] == attempts[2]
        x, out = torch.arange(64).float(), torch.zeros(64)
        diverging[(4,)](x, out, N=16)

    assert not opened.fallbacks

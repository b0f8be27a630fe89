"""Kernels that are launched twice, and whether the second launch ran: for the tests of launches that need not run."""

import torch
import triton
import triton.language as tl

from flashverify.interpreter import watch
from flashverify.interpreter.repeats import Launches

N = 8
FACTOR = tl.constexpr(2.0)


@triton.jit
def doubled(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, 2.0 * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def scaled(x, out, n, by, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, by * tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def by_global(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0) * FACTOR, mask=at < n)


@triton.jit
def summed(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def swapped(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.atomic_cas(out, 0.0, 1.0)
    tl.store(x + TILE + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def telling(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.device_print("values", values)
    tl.store(out + at, values, mask=at < n)


@triton.jit
def telling_once(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.static_print("a tile of", TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def asserting(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    values = tl.load(x + at, mask=at < n, other=0.0)
    tl.device_assert(values < 100.0, "too large")
    tl.store(out + at, values, mask=at < n)


@triton.jit
def refusing(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)
    tl.static_assert(n == 0, "not of this length")


@triton.jit
def by_address(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    odd = (x.to(tl.int64) // 16 % 2).to(tl.float32)
    tl.store(out + at, odd + tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def by_cast(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    bits = tl.load(x.to(tl.pointer_type(tl.int32)) + at, mask=at < n, other=0)
    tl.store(out + at, bits.to(tl.float32, bitcast=True), mask=at < n)


@triton.jit
def undefined(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def unmasked(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, 2 * TILE)
    tl.store(out + at, tl.load(x + at), mask=at < n)


@triton.jit
def clashing(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def blocked(x, out, n, TILE: tl.constexpr):
    block = tl.make_block_ptr(x, (n,), (1,), (0,), (TILE,), (0,))
    values = tl.load(block, boundary_check=(0,), padding_option="zero")
    at = tl.arange(0, TILE)
    tl.store(out + at, values, mask=at < n)


@triton.jit
def described(x, out, n, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tile = tl.make_tensor_descriptor(x, (1, n), (TILE, 1), (1, TILE))
    tl.store(out + at, tl.reshape(tile.load([0, 0]), (TILE,)), mask=at < n)


@triton.jit
def parted(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    first = tl.load(x + tl.program_id(0) * TILE)
    tl.store(out + at, 0.0 * at, mask=at < n)
    if first > 0.0:
        tl.store(out + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def inputs():
    x = torch.full((2 * N,), 7.0)
    x[: N - 1] = torch.arange(1.0, N)
    return x


def poison(tensor):
    return 0x7FA5A5A5 if tensor.dtype == torch.float32 else None


def launch(session, kernel, x, out, *more, known, grid=1, **watched):
    """Run a kernel: whether it did run, and what was reported."""
    before = session.attempts + session.fallbacks.total()
    at = {x.untyped_storage().data_ptr()}
    with watch(**({"inputs": at, "poison": poison, "kept": known, "known": known} | watched)) as seen:
        kernel[(grid,)](x, out, *(more or (N - 1,)), TILE=N // grid)
    return session.attempts + session.fallbacks.total() > before, seen


def twice(session, kernel, change=lambda x: None, **options):
    """Whether a kernel runs again after a change of its input."""
    known, x = Launches(), inputs()
    out = torch.full((4 * N,), float("nan"))
    assert launch(session, kernel, x, out, known=known, **options)[0]
    change(x)
    return launch(session, kernel, x, out, known=known, **options)[0]

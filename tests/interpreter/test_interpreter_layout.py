"""Products and sums do not depend on how their operands lie in memory, whatever the machine's BLAS."""

import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Layer, session

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
BOTH = pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "alone"])


@triton.jit
def four_products(a_ptr, b_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    m, k, n = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    a = tl.load(a_ptr + p * M * K + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    a_turned = tl.trans(tl.load(a_ptr + p * M * K + m[None, :] * K + k[:, None]))
    b_turned = tl.trans(tl.load(b_ptr + k[None, :] * N + n[:, None]))
    at = out_ptr + p * 4 * M * N + m[:, None] * N + n[None, :]
    tl.store(at, tl.dot(a, b, input_precision="ieee", out_dtype=out_ptr.dtype.element_ty))
    tl.store(at + M * N, tl.dot(a_turned, b, input_precision="ieee", out_dtype=out_ptr.dtype.element_ty))
    tl.store(at + 2 * M * N, tl.dot(a, b_turned, input_precision="ieee", out_dtype=out_ptr.dtype.element_ty))
    tl.store(at + 3 * M * N, tl.dot(a_turned, b_turned, input_precision="ieee", out_dtype=out_ptr.dtype.element_ty))


class InOrder(Layer):
    """Counts the products, and asserts that each tile of their operands has its rows one after the other."""

    count = 0

    def accumulate(self, x, y, acc, kind):
        InOrder.count += 1
        for tile in (x, y):
            assert tile[0].flags.c_contiguous if tile.ndim == 3 else tile.flags.c_contiguous
        return super().accumulate(x, y, acc, kind)


def products(dtype, size, *mixins, lockstep=True):
    """`[programs, 4, M, N]`: the product of the same matrices, each stored straight and turned."""
    m, k, n = size
    generator = torch.Generator().manual_seed(m * k + n)
    a = torch.randn(3, m, k, generator=generator).to(dtype)
    b = torch.randn(k, n, generator=generator).to(dtype)
    out = torch.zeros(3, 4, m, n, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    with session(*mixins, lockstep=lockstep) as opened:
        four_products[(3,)](a, b, out, M=m, K=k, N=n)
        assert not opened.fallbacks
    return a, b, out


@BOTH
@DTYPES
def test_a_product_reads_its_operands_in_one_layout(dtype, lockstep):
    InOrder.count = 0

    products(dtype, (16, 32, 64), InOrder, lockstep=lockstep)

    assert InOrder.count == 4 * (1 if lockstep else 3)


@DTYPES
@pytest.mark.parametrize("size", [(16, 16, 16), (16, 64, 32), (32, 128, 64), (64, 256, 16)], ids=str)
def test_a_product_has_the_same_bits_in_every_layout_alone_and_in_lockstep(size, dtype):
    a, b, together = products(dtype, size)
    _, _, alone = products(dtype, size, lockstep=False)

    assert torch.equal(together, alone)
    assert all(torch.equal(together[:, 0], together[:, n]) for n in range(1, 4))
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    error = (together[:, 0].double() - a.double() @ b.double()).abs()
    assert (error <= 2 * size[1] * unit * (a.double().abs() @ b.double().abs())).all()


@triton.jit
def sums(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    p = tl.program_id(0)
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + p * M * N + m[:, None] * N + n[None, :])
    turned = tl.trans(tl.load(x_ptr + p * M * N + m[None, :] * N + n[:, None]))
    at = out_ptr + p * 2 * (M + N)
    tl.store(at + m, tl.sum(x, 1))
    tl.store(at + M + n, tl.sum(x, 0))
    tl.store(at + M + N + m, tl.sum(turned, 1))
    tl.store(at + 2 * M + N + n, tl.sum(turned, 0))


def test_a_sum_has_the_same_bits_in_every_layout_alone_and_in_lockstep():
    m, n = 32, 64
    x = torch.randn(3, m, n, generator=torch.Generator().manual_seed(0))
    results = []
    for lockstep in (True, False):
        out = torch.zeros(3, 2, m + n)
        with session(lockstep=lockstep):
            sums[(3,)](x, out, M=m, N=n)
        results.append(out)

    assert torch.equal(*results)
    assert torch.equal(results[0][:, 0], results[0][:, 1])


def beside_stock(dtype, size):
    """The four products of integers, from Triton's own interpreter and from a session."""
    m, k, n = size
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randint(-8, 9, shape, generator=generator).to(dtype) for shape in ((3, m, k), (k, n)))
    out = torch.zeros(3, 4, m, n)
    four_products[(3,)](a, b, out, M=m, K=k, N=n)
    with session():
        ours = torch.zeros_like(out)
        four_products[(3,)](a, b, ours, M=m, K=k, N=n)
    return out, ours


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_products_of_integers_are_those_of_the_stock_interpreter_in_every_layout(dtype):
    stock, ours = beside_stock(dtype, (16, 128, 32))

    assert torch.equal(stock, ours)
    assert stock.abs().max() > 100


class Halving(Layer):
    """Puts another array in the place of the left operand of each product."""

    def create_dot(self, a, b, *rest, **options):
        a.data = a.data / a.data.dtype.type(2)
        return super().create_dot(a, b, *rest, **options)


@triton.jit
def summed_products(a_ptr, out_ptr, TURNS: tl.constexpr):
    i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a, total = tl.load(a_ptr + i * 16 + j), tl.zeros((16, 16), tl.float32)
    one = tl.where(i == j, 1.0, 0.0).to(a.dtype)
    for _ in range(TURNS):
        total = tl.dot(a, one, total, input_precision="ieee")
    tl.store(out_ptr + i * 16 + j, total)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_an_array_that_a_mixin_puts_in_place_of_an_operand_is_what_the_next_product_takes(dtype, lockstep):
    a, out = torch.full((16, 16), 8.0, dtype=dtype), torch.zeros(16, 16)
    with session(Halving, lockstep=lockstep) as opened:
        if lockstep:
            opened.lockstep_class.tapes = None  # a recording gets copies of the tiles that are given to it
        summed_products[(1,)](a, out, TURNS=3)

    assert torch.equal(out, torch.full((16, 16), 4.0 + 2.0 + 1.0))


class InPlace(Layer):
    """Changes the operands of a product where they lie."""

    def accumulate(self, x, y, acc, kind):
        x *= x.dtype.type(0.5)
        return super().accumulate(x, y, acc, kind)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_a_product_that_would_change_its_operand_for_the_next_one_is_refused(dtype, lockstep):
    a, out = torch.full((16, 16), 8.0, dtype=dtype), torch.zeros(16, 16)
    with session(InPlace, lockstep=lockstep), pytest.raises(Exception, match="read-only"):
        summed_products[(1,)](a, out, TURNS=3)

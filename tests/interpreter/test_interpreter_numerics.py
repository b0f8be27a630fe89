"""What kernels compute in a session, against torch and float64."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from flashverify.interpreter import Layer, session

BOTH = pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "alone"])


@triton.jit
def arithmetic(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    i = p * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    total = tl.num_programs(0) * N
    tl.store(out_ptr + i, x + y)
    tl.store(out_ptr + total + i, x - y)
    tl.store(out_ptr + 2 * total + i, x * y)
    tl.store(out_ptr + 3 * total + i, (x / y).to(x.dtype))
    tl.store(out_ptr + 4 * total + i, tl.where(x < y, x, y))
    tl.store(out_ptr + 5 * total + i, tl.abs(x))
    tl.store(out_ptr + 6 * total + i, tl.maximum(x, y))
    tl.store(out_ptr + 7 * total + i, tl.minimum(x, y))


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_arithmetic_is_that_of_torch(dtype, lockstep):
    ints = torch.int32 if dtype == torch.float32 else torch.int16
    generator = torch.Generator().manual_seed(7)
    x, y = (
        torch.randint(torch.iinfo(ints).min, torch.iinfo(ints).max, (4096,), dtype=ints, generator=generator).view(
            dtype
        )
        for _ in range(2)
    )
    x[:512], y[:512] = (torch.randn(512, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty(8, 4096, dtype=dtype)
    with session(lockstep=lockstep):
        arithmetic[(4,)](x, y, out, N=1024)

    quotient = (x.float() / y.float()).to(dtype)
    larger, smaller = (  # torch.fmax keeps a signalling NaN
        torch.where(x.isnan(), y, torch.where(y.isnan(), x, f(x, y))) for f in (torch.maximum, torch.minimum)
    )
    want = [x + y, x - y, x * y, quotient, torch.where(x < y, x, y), x.abs(), larger, smaller]
    for row, expected in zip(out, want, strict=True):
        assert torch.equal(row.isnan(), expected.isnan())
        assert torch.equal(row[~row.isnan()], expected[~expected.isnan()])


@triton.jit
def product(a_ptr, b_ptr, out_ptr, M: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    p = tl.program_id(0)
    m = tl.arange(0, M)
    k = tl.arange(0, K)
    a = tl.load(a_ptr + p * M * K + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + p * M * K + m[:, None] * K + k[None, :])
    out = tl.dot(a, tl.trans(b), input_precision=PRECISION)
    tl.store(out_ptr + p * M * M + m[:, None] * M + m[None, :], out)


def products(a, b, precision="ieee", lockstep=True, mixins=()):
    out = torch.empty(a.shape[0], a.shape[1], a.shape[1])
    with session(*mixins, lockstep=lockstep) as opened:
        product[(a.shape[0],)](a, b, out, M=a.shape[1], K=a.shape[2], PRECISION=precision)
        assert not opened.fallbacks
    return out


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_a_dot_sums_exact_products_in_fp32(dtype, lockstep):
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(3, 16, 32, generator=generator).to(dtype) for _ in range(2))

    out = products(a, b, lockstep=lockstep)

    exact = a.double() @ b.double().mT
    assert ((out - exact).abs() <= 32 * 2.0**-24 * (a.double().abs() @ b.double().abs().mT)).all()


def test_input_precision_decides_what_a_dot_of_fp32_reads():
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(3, 16, 32, generator=generator) for _ in range(2))
    low = torch.full_like(a, 1 + 2.0**-11)

    error = {p: (products(a, b, p) - a.double() @ b.double().mT).abs().max() for p in ("ieee", "tf32x3", "tf32")}

    assert error["ieee"] < 4e-6
    assert error["tf32x3"] < 2e-5
    assert 1e-3 < error["tf32"] < 0.1
    assert (products(low, torch.ones_like(b), "tf32") == 32).all()
    assert (products(low, torch.ones_like(b), "tf32x3") == 32 + 2.0**-6).all()


def test_tf32x3_drops_the_nan_of_its_small_parts():
    a, b = torch.ones(2, 16, 32), torch.ones(2, 16, 32)
    a[0, 0, 0] = torch.inf

    assert (products(a, b, "tf32x3")[0, 0] == torch.inf).all()


class Exact(Layer):
    def accumulate(self, x, y, acc, kind):
        assert kind == "bfloat16"
        return (np.matmul(x.astype(np.float64), y.astype(np.float64)) + acc).astype(np.float32)


def test_a_mixin_may_replace_the_tensor_core():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(3, 16, 32, generator=generator).bfloat16() for _ in range(2))

    assert torch.equal(products(a, b, mixins=(Exact,)), (a.double() @ b.double().mT).float())


@triton.jit
def reductions(x_ptr, out_ptr, N: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, N)
    x = tl.load(x_ptr + p * N + i)
    at = out_ptr + p * 8
    tl.store(at, tl.sum(x, 0).to(tl.float32))
    tl.store(at + 1, tl.max(x, 0).to(tl.float32))
    tl.store(at + 2, tl.min(x, 0).to(tl.float32))
    tl.store(at + 3, tl.argmax(x, 0).to(tl.float32))
    tl.store(at + 4, tl.sum(tl.reshape(x, (4, N // 4))).to(tl.float32))
    tl.store(at + 5, tl.max(tl.cumsum(x, 0)).to(tl.float32))
    tl.store(at + 6, tl.sum(tl.max(tl.reshape(x, (4, N // 4)), 1, keep_dims=True)).to(tl.float32))
    tl.store(at + 7, tl.xor_sum(i + p, 0).to(tl.float32))


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_reductions_of_small_integers_are_exact(dtype, lockstep):
    x = torch.randint(-4, 5, (3, 16), generator=torch.Generator().manual_seed(5)).to(dtype)
    x[:, 3] = 7
    out = torch.empty(3, 8)
    with session(lockstep=lockstep) as opened:
        reductions[(3,)](x, out, N=16)
        assert not opened.fallbacks

    f = x.float()
    xor = [float(np.bitwise_xor.reduce(np.arange(16) + p)) for p in range(3)]
    want = [f.sum(1), f.amax(1), f.amin(1), torch.full((3,), 3.0), f.sum(1), f.cumsum(1).amax(1)]
    want += [f.reshape(3, 4, 4).amax(2).sum(1), torch.tensor(xor)]
    assert torch.equal(out, torch.stack(want, 1))


@pytest.mark.parametrize(("dtype", "first", "total"), [(torch.bfloat16, 512, 1020), (torch.float16, 2048, 2558)])
def test_a_sum_of_16_bits_rounds_every_partial_sum(dtype, first, total):
    x = torch.ones(1, 512, dtype=dtype)
    x[0, 0] = first
    out = torch.empty(1, 8)
    with session():
        reductions[(1,)](x, out, N=512)

    assert (
        out[0, 0] == total
    )  # by halves 512 absorbs 1 and 2 in bf16, 2048 absorbs 1 in fp16; in ascending order they would absorb all


@triton.jit
def nan_rules(x_ptr, y_ptr, out_ptr):
    i = tl.arange(0, 4) + tl.program_id(0) * 4
    x = tl.load(x_ptr + i)
    y = tl.load(y_ptr + i)
    tl.store(out_ptr + i, tl.maximum(x, y))
    tl.store(out_ptr + 8 + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 16 + i, tl.clamp(x, -1.0, 1.0))
    tl.store(out_ptr + 24 + i, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out_ptr + 32 + i, tl.where(x != x, 9.0, x))
    tl.store(out_ptr + 40 + i, tl.where(x == x, 1.0, 0.0))


@BOTH
def test_nan_is_treated_as_compiled_kernels_treat_it(lockstep):
    nan = torch.nan
    x, y = torch.tensor([nan, 2.0, nan, 3.0] * 2), torch.tensor([1.0, nan, nan, 4.0] * 2)
    out = torch.empty(6, 8)
    with session(lockstep=lockstep):
        nan_rules[(2,)](x, y, out)

    want = [
        [1.0, 2.0, nan, 4.0],
        [nan, nan, nan, 4.0],
        [-1.0, 1.0, -1.0, 1.0],
        [nan, 1.0, nan, 1.0],
        [9.0, 2.0, 9.0, 3.0],
        [0.0, 1.0, 0.0, 1.0],
    ]
    assert torch.equal(out.nan_to_num(nan=-77), torch.tensor(want).repeat(1, 2).nan_to_num(nan=-77))


@triton.jit
def accumulate(out_ptr, x_ptr, LARGEST: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * 4 + tl.arange(0, 4))
    if LARGEST:
        tl.atomic_xchg(out_ptr + tl.arange(0, 4) * 0, x)
    else:
        tl.atomic_add(out_ptr + tl.arange(0, 4) * 0, x)


def test_atomic_addition_of_bf16_and_the_refusal_of_the_rest():
    x, out = torch.arange(1, 13).bfloat16(), torch.zeros(1).bfloat16()
    with session() as opened:
        accumulate[(3,)](out, x, LARGEST=False)
        with pytest.raises(Exception, match="bf16"):
            accumulate[(3,)](out, x, LARGEST=True)

    assert out.item() == 78
    assert [name for name, _ in opened.fallbacks] == ["accumulate", "accumulate"]


def test_an_atomic_sum_of_fp16_that_overflows_is_infinite():
    x = torch.tensor([1.5, 2.5, -0.5, 2048.0] * 3, dtype=torch.float16)
    large = torch.full((12,), 60000.0, dtype=torch.float16)
    sums = torch.zeros(2, dtype=torch.float16)
    with session():
        accumulate[(3,)](sums, x, LARGEST=False)
        accumulate[(3,)](sums[1:], large, LARGEST=False)

    assert sums[1] == torch.inf
    assert abs(sums[0].item() - 6154.5) <= 8


@triton.jit
def argument_types(x_ptr, out_ptr, factor, stride: tl.int64):
    p = tl.program_id(0)
    tl.store(out_ptr + p, (tl.load(x_ptr + p) * factor).to(tl.float32))
    tl.store(out_ptr + 2 + p, ((p + 1) * stride // 4).to(tl.float32))


def test_arguments_have_the_types_that_compiled_kernels_get():
    x, out = torch.tensor([1.0, 3.0]).half(), torch.empty(4)
    with session():
        argument_types[(2,)](x, out, 1 + 2.0**-12, 2**30)

    assert out.tolist() == [1 + 2.0**-12, 3 + 3 * 2.0**-12, 2.0**28, 2.0**29]

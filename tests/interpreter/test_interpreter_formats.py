"""Conversions against torch, exhaustively where a format has 65,536 patterns, and against exact rational numbers."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from flashverify.interpreter.formats import (
    BF16,
    convert,
    float_to_int,
    fma,
    is_float,
    numpy_dtype,
    tf32_nearest,
    tf32_truncate,
    toward_zero,
)
from flashverify.interpreter.hooks import tl

FP16, FP32, FP64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
TORCH = {BF16: torch.bfloat16, FP16: torch.float16, FP32: torch.float32, FP64: torch.float64}
ALL = np.arange(65536, dtype=np.uint16)


def to_torch(x):
    ints = {2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    return torch.from_numpy(x.view(ints).copy()).view(TORCH[x.dtype])


def same(got, want):
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[want.element_size()]
    return bool(((got.view(ints) == want.view(ints)) | (got.isnan() & want.isnan())).all())


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("source", [BF16, FP16], ids=str)
@pytest.mark.parametrize("target", [BF16, FP16, FP32, FP64], ids=str)
def test_every_16_bit_pattern_converts_as_in_torch(source, target):
    x = ALL.view(source)

    assert same(to_torch(convert(x, target)), to_torch(x).to(TORCH[target]))


@pytest.mark.parametrize("target", [BF16, FP16], ids=str)
def test_fp32_rounds_to_nearest_even_as_in_torch(target):
    high = ALL.astype(np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x0FFF, 0x1000, 0x1001, 0x3000], np.uint32)
    x = (high[:, None] | low).reshape(-1).view(FP32)

    assert same(to_torch(convert(x, target)), to_torch(x).to(TORCH[target]))


def test_fp64_to_bf16_rounds_once():
    above_a_tie = 1 + 2.0**-8 + 2.0**-40
    x = np.array([above_a_tie, -above_a_tie, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40, 2.0**-133, 2.0**-134, 1e39, np.inf])

    got = convert(x, BF16).astype(FP64)

    assert got.tolist() == [1 + 2.0**-7, -1 - 2.0**-7, 1.0, 1.0, 2.0**-133, 0.0, np.inf, np.inf]


@pytest.mark.parametrize(
    ("dtype", "reference", "largest"),
    [(ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn, 448.0), (ml_dtypes.float8_e5m2, torch.float8_e5m2, 57344.0)],
    ids=["e4m3", "e5m2"],
)
def test_fp8_converts_as_in_torch_and_saturates(dtype, reference, largest):
    dtype = np.dtype(dtype)
    for source in (ALL.view(BF16), ALL.view(FP16)):
        x = source[np.abs(source.astype(FP32)) <= largest]
        want = to_torch(x).to(reference)
        got = torch.from_numpy(convert(x, dtype).view(np.uint8).copy()).view(reference)

        assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))

    edge = convert(np.array([1e9, -1e9, np.inf, -np.inf, np.nan], FP32), dtype).astype(FP32)

    assert edge[:4].tolist() == [largest, -largest, largest, -largest]
    assert np.isnan(edge[4])


def test_every_fp8_pattern_widens_as_in_torch():
    x = np.arange(256, dtype=np.uint8)
    for dtype, reference in (
        (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
        (ml_dtypes.float8_e5m2, torch.float8_e5m2),
    ):
        assert same(to_torch(convert(x.view(dtype), FP32)), torch.from_numpy(x).view(reference).float())


def test_rounding_toward_zero_never_grows():
    x = ((ALL.astype(np.uint32) << 16) | 0x9C35).view(FP32)
    for target in (BF16, FP16):
        got = toward_zero(x, target).astype(FP32)
        finite = np.isfinite(x)

        assert (np.abs(got[finite]) <= np.abs(x[finite])).all()

    bf16 = toward_zero(x, BF16).view(np.uint16)

    assert np.array_equal(bf16[np.isfinite(x)], ALL[np.isfinite(x)])


def test_floats_become_integers_as_ptx_has_it():
    x = np.array([1.9, -1.9, 3e9, -3e9, np.nan, np.inf, -np.inf], FP32)

    assert float_to_int(x, np.dtype(np.int32)).tolist() == [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31)]
    assert float_to_int(x, np.dtype(np.uint32)).tolist() == [1, 0, 3000000000, 0, 0, 2**32 - 1, 0]
    assert float_to_int(x[4:], np.dtype(np.int64)).tolist() == [-(2**63), 2**63 - 1, -(2**63)]
    assert float_to_int(x[4:].astype(np.float64), np.dtype(np.int32)).tolist() == [-(2**31), 2**31 - 1, -(2**31)]
    assert float_to_int(x[4:5], np.dtype(np.uint64)).tolist() == [2**63]


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32], ids=str)
def test_fma_rounds_once(dtype):
    bits = 8 * dtype.itemsize
    rng = np.random.default_rng(3)
    x, y, z = (rng.integers(0, 2**bits, 4000, dtype=np.uint64).astype(f"uint{bits}").view(dtype) for _ in range(3))
    half = FP64.type(2.0 ** -{BF16: 8, FP16: 11, FP32: 24}[dtype])
    x[:2], y[:2], z[:2] = 1 + half * 2, 1 + half * 2, [2.0**-14, -(2.0**-14)]

    got = fma(x, y, z)

    checked = 0
    for a, b, c, r in zip(x, y, z, got, strict=True):
        if not all(np.isfinite(v) for v in (a, b, c, r)):
            continue
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        error = abs(Fraction(float(r)) - exact)
        around = (np.nextafter(r, dtype.type(s), dtype=dtype) for s in (-np.inf, np.inf))
        assert all(error <= abs(Fraction(float(n)) - exact) for n in around if np.isfinite(n))
        checked += 1
    assert checked > 500


def test_tf32_operands():
    x = np.array([1 + 2.0**-11, 1 + 2.0**-10, 1 + 2.0**-10 + 2.0**-11, -1 - 2.0**-11, np.inf, np.nan], FP32)
    x[5:].view(np.uint32)[0] = 0x7F800001  # a payload that truncation would lose

    assert tf32_truncate(x)[:5].tolist() == [1.0, 1 + 2.0**-10, 1 + 2.0**-10, -1.0, np.inf]
    assert tf32_nearest(x)[:5].tolist() == [1 + 2.0**-10, 1 + 2.0**-10, 1 + 2.0**-9, -1 - 2.0**-10, np.inf]
    assert np.isnan(tf32_truncate(x)[5])
    assert np.isnan(tf32_nearest(x)[5])


def test_types_of_ml_dtypes_are_floats_and_unknown_ones_are_refused():
    assert all(is_float(numpy_dtype(t)) for t in (tl.bfloat16, tl.float8e4nv, tl.float8e5, tl.float16, tl.float64))
    assert not is_float(numpy_dtype(tl.int32))
    assert numpy_dtype(tl.pointer_type(tl.bfloat16)) == np.uint64
    with pytest.raises(TypeError, match="fp8e4b15"):
        numpy_dtype(tl.float8e4b15)

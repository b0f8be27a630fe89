"""Single rounding, exhaustively around every tie of the 16-bit formats."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from torch import Tensor

from flashverify_oracles import round_array, round_scalar, round_tensor

HALVES = [torch.float16, torch.bfloat16]
NARROW = [*HALVES, torch.float32]


def neighbours(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every non-negative finite number of a 16-bit format with its successor; past the largest, the value that follows it in the grid."""
    infinity = int(torch.tensor(math.inf, dtype=dtype).view(torch.int16))
    values = torch.arange(infinity, dtype=torch.int16).view(dtype).double()
    return values, torch.cat([values[1:], (2 * values[-1] - values[-2]).reshape(1)])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_tie_and_its_two_neighbours(dtype: torch.dtype, sign: float) -> None:
    low, high = neighbours(dtype)
    tie = (low + high) / 2
    up, down = torch.nextafter(tie, high), torch.nextafter(tie, low)
    even = torch.where(torch.arange(len(low)) % 2 == 0, low, high)
    to_infinity = high > torch.finfo(dtype).max

    def expected(t: Tensor) -> Tensor:
        return sign * t.masked_fill((t == high) & to_infinity, math.inf)

    for x, want in ((low, low), (down, low), (tie, even), (up, high)):
        got = round_tensor(sign * x, dtype)
        assert got.dtype == dtype
        assert torch.equal(got.double(), expected(want))
        assert torch.equal(torch.signbit(got), torch.signbit(sign * x))


@pytest.mark.parametrize("dtype", NARROW)
def test_scalar_and_tensor_agree_on_random_bit_patterns(dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**63), 2**63 - 1, (4000,), generator=torch.Generator().manual_seed(0))
    info = torch.finfo(dtype)
    near = torch.rand(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 4
    x = torch.cat([bits.view(torch.float64), near * info.tiny, near * info.smallest_normal, near * info.max / 2])
    x = x[~x.isnan()]

    by_scalar = torch.tensor([round_scalar(value, dtype) for value in x.tolist()], dtype=torch.float64)

    assert torch.equal(round_tensor(x, dtype).double(), by_scalar)


def test_float32_agrees_with_the_single_rounding_of_the_processor() -> None:
    bits = torch.randint(-(2**63), 2**63 - 1, (100_000,), generator=torch.Generator().manual_seed(2))
    scaled = torch.randn(100_000, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2.0**-140
    x = torch.cat([bits.view(torch.float64), scaled])
    x = x[~x.isnan()]

    assert torch.equal(round_tensor(x, torch.float32), x.to(torch.float32))


def test_double_rounding_is_avoided() -> None:
    x = 1 + 2.0**-8 + 2.0**-40

    assert float(torch.tensor(x, dtype=torch.float64).to(torch.bfloat16)) == 1.0  # by way of float32
    assert float(round_tensor(torch.tensor(x, dtype=torch.float64), torch.bfloat16)) == 1.0078125
    assert round_scalar(x, torch.bfloat16) == 1.0078125


@pytest.mark.parametrize("dtype", [*NARROW, torch.float64])
def test_what_float64_cannot_hold_still_decides_a_tie(dtype: torch.dtype) -> None:
    eps = Fraction(torch.finfo(dtype).eps)
    hair = Fraction(1, 2**2000)

    assert round_scalar(1 + eps / 2, dtype) == 1.0
    assert round_scalar(1 + eps / 2 + hair, dtype) == 1 + eps
    assert round_scalar(1 + eps + eps / 2, dtype) == 1 + 2 * eps
    assert round_scalar(1 + eps + eps / 2 - hair, dtype) == 1 + eps
    with mp.workprec(2100):
        assert round_scalar(mp.mpf(eps.numerator) / eps.denominator / 2 + 1 + mp.ldexp(1, -2000), dtype) == 1 + eps


@pytest.mark.parametrize("dtype", [*NARROW, torch.float64])
def test_overflow_begins_at_the_midpoint(dtype: torch.dtype) -> None:
    largest = Fraction(torch.finfo(dtype).max)
    midpoint = largest * (1 + Fraction(torch.finfo(dtype).eps) / 4 / (1 - Fraction(torch.finfo(dtype).eps) / 2))
    assert midpoint.denominator == 1

    assert round_scalar(midpoint - Fraction(1, 7), dtype) == largest
    assert round_scalar(midpoint, dtype) == math.inf
    assert round_scalar(-midpoint, dtype) == -math.inf
    assert round_scalar(largest, dtype) == largest
    assert round_scalar(10**400, dtype) == math.inf


@pytest.mark.parametrize("dtype", [*NARROW, torch.float64])
def test_the_smallest_subnormal_begins_above_its_half(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    smallest = Fraction(info.smallest_normal) * Fraction(info.eps)

    assert round_scalar(smallest / 2, dtype) == 0.0
    assert round_scalar(smallest / 2 * (1 + Fraction(1, 10**30)), dtype) == smallest
    assert round_scalar(smallest * Fraction(3, 2), dtype) == 2 * smallest
    assert math.copysign(1.0, round_scalar(-smallest / 3, dtype)) == -1.0
    with mp.workprec(60):
        assert round_scalar(mp.exp(-200_000), dtype) == 0.0


def test_values_that_are_no_ordinary_numbers() -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0], dtype=torch.float64)
    for dtype in NARROW:
        got = round_tensor(x, dtype)
        assert torch.equal(got[[0, 1, 3, 4]].double(), x[[0, 1, 3, 4]])
        assert bool(got[2].isnan())
        assert torch.signbit(got).tolist()[3:] == [False, True]
        assert math.isnan(round_scalar(mp.nan, dtype))
        assert (round_scalar(mp.inf, dtype), round_scalar(-mp.inf, dtype)) == (math.inf, -math.inf)
        assert math.copysign(1.0, round_scalar(-0.0, dtype)) == -1.0


@given(st.fractions(), st.sampled_from(NARROW))
def test_the_result_is_a_nearest_number(x: Fraction, dtype: torch.dtype) -> None:
    y = torch.tensor(round_scalar(x, dtype), dtype=torch.float64).to(dtype)

    for other in (math.inf, -math.inf):
        beside = float(torch.nextafter(y.float(), torch.tensor(other))) if dtype == torch.float32 else step(y, other)
        if math.isfinite(beside) and y.isfinite():
            assert abs(Fraction(float(y)) - x) <= abs(Fraction(beside) - x)


def step(y: Tensor, towards: float) -> float:
    """The neighbour of a 16-bit number in one direction."""
    bits = int(y.view(torch.int16))
    key = bits if bits >= 0 else -(bits & 0x7FFF)
    key += 1 if towards > 0 else -1
    return float(torch.tensor(abs(key), dtype=torch.int16).view(y.dtype)) * (1 if key >= 0 else -1)


def test_the_documents_claims_about_exp_in_float32() -> None:
    # "exp(85) = overflow" is printed there; exp(85) = 8.2e36 is below the largest float32, exp(89) is not, exp(-104) vanishes.
    with mp.workprec(100):
        assert math.isfinite(round_scalar(mp.exp(85), torch.float32))
        assert round_scalar(mp.exp(89), torch.float32) == math.inf
        assert round_scalar(mp.exp(-100), torch.float32) == pytest.approx(3.72e-44, rel=0.02)
        assert round_scalar(mp.exp(-104), torch.float32) == 0.0


def test_arrays_keep_their_shape() -> None:
    values = np.array([[mp.mpf(1), Fraction(1, 3), 0.1], [2, mp.mpf("-inf"), 1e300]], dtype=object)

    got = round_array(values, torch.float16)

    assert got.dtype == torch.float16
    expected = [[1.0, 0.333251953125, 0.0999755859375], [2.0, -math.inf, math.inf]]
    assert got.tolist() == expected
    assert round_array(np.zeros((0, 3), dtype=object), torch.bfloat16).shape == (0, 3)


def test_precision_of_mpmath_does_not_matter() -> None:
    with mp.workprec(300):
        x = 1 + mp.ldexp(1, -8) + mp.ldexp(1, -250)
    with mp.workprec(20):
        assert round_scalar(x, torch.bfloat16) == 1.0078125
    assert mpmath.mp.prec == 53


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"dtype must be one of torch\.float16, .*, got torch\.int8"):
        round_scalar(1.0, torch.int8)
    with pytest.raises(TypeError, match="x must be an mpf, a Fraction, an int or a float, got '1'"):
        round_scalar("1", torch.float16)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got True"):
        round_scalar(True, torch.float16)
    with pytest.raises(TypeError, match=r"x must be a float64 tensor, got torch\.float32"):
        round_tensor(torch.ones(2), torch.float16)

import math

import pytest
import torch

import flashverify.numerics as numerics
from flashverify.numerics import ARCHITECTURES, FORMATS, Form, dot_coefficient, format_of

U = 2.0**-24


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp64"])
def test_formats_agree_with_torch(name: str) -> None:
    entry = FORMATS[name]
    info = torch.finfo(entry.dtype)
    assert entry.max == info.max
    assert entry.min_normal == info.tiny
    assert 2 * entry.u == info.eps
    assert (
        entry.min_subnormal
        == torch.nextafter(torch.zeros((), dtype=entry.dtype), torch.ones((), dtype=entry.dtype)).item()
    )
    assert format_of(entry.dtype) is entry


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32"])
def test_overflow_threshold_is_the_first_value_that_rounds_to_infinity(name: str) -> None:
    entry = FORMATS[name]
    assert torch.tensor(entry.overflow, dtype=torch.float64).to(entry.dtype).isinf()
    # torch rounds float64 to 16 bits through fp32, so the value below is taken on fp32's own grid; for fp32, on float64's.
    grid = torch.float64 if name == "fp32" else torch.float32
    below = torch.nextafter(torch.tensor(entry.overflow, dtype=grid), torch.zeros((), dtype=grid)).item()
    assert torch.tensor(below, dtype=torch.float64).to(entry.dtype).item() == entry.max


@pytest.mark.parametrize(
    ("architecture", "dtype", "dot", "products", "units"),
    [
        ("sm_90", "fp16", "ieee", 16, 10),
        ("sm_80", "bf16", "ieee", 8, 10),
        ("sm_70", "fp16", "ieee", 4, 10),
        ("sm_75", "fp16", "ieee", 4, 6),
        ("ieee", "fp16", "ieee", 16, 16),
        ("ieee", "fp32", "ieee", 16, 16),
    ],
)
def test_dot_coefficient_per_step(architecture: str, dtype: str, dot: str, products: int, units: int) -> None:
    K = 64 * products
    got = dot_coefficient(K, dtype=dtype, dot=dot, architecture=architecture)
    assert got == pytest.approx(64 * max(units, products) * U, rel=1e-3)


def test_tf32_truncates_its_operands() -> None:
    assert 2.0**-9 < dot_coefficient(8, dtype="fp32", dot="tf32", architecture="sm_90") < 2.0**-9 + 40 * U
    assert dot_coefficient(8, dtype="fp32", dot="tf32x3", architecture="sm_90") < 50 * U
    assert dot_coefficient(8, dtype="fp16", dot="tf32") == dot_coefficient(8, dtype="fp16")


def test_unknown_architecture_gets_the_maximum() -> None:
    for dtype in ("fp16", "bf16", "fp32"):
        for dot in ("ieee", "tf32", "tf32x3"):
            unknown = dot_coefficient(100, dtype=dtype, dot=dot, architecture="sm_999")
            assert unknown == max(dot_coefficient(100, dtype=dtype, dot=dot, architecture=a) for a in ARCHITECTURES)


def test_dot_coefficient_grows_and_stays_finite() -> None:
    values = [dot_coefficient(K, dtype="fp16") for K in (0, 1, 16, 17, 1 << 16, 1 << 30)]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert math.isfinite(values[-1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exp", "exp2"),
        ("exp_eps", -1.0),
        ("gap_c", math.nan),
        ("rescale_threshold", 99.0),
        ("prescale_fwd", "v"),
        ("softcap", True),
        ("softcap_slope", "tanh"),
        ("kappa_bias", -1.0),
        ("dropout_scale", "fp16"),
        ("grad_uses_prescaled", 1),
        ("block_n", 0),
        ("n_blocks", True),
        ("n_splits", None),
        ("dot", "fp8"),
        ("out_dtype", "fp64"),
        ("architecture", ""),
    ],
)
def test_a_bad_value_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{field}=.*accepted"):
        Form(**{field: value})  # type: ignore[arg-type]


def test_describe_separates_declared_from_assumed() -> None:
    described = Form(exp="exp", block_n=64).describe()
    assert described["declared"] == {"exp": "exp", "block_n": 64}
    assert described["assumed"]["gap_c"] == 3.0
    assert Form(exp_eps=7).eps == 7 * U


def test_public_names_are_unique_and_exist() -> None:
    assert len(numerics.__all__) == len(set(numerics.__all__))
    assert all(hasattr(numerics, name) for name in numerics.__all__)

"""A correct kernel stays below its bound, whatever the values, the exponential's bias and its form."""

from collections.abc import Mapping

import pytest
import torch

from flashverify.numerics import Form
from tests.numerics.emulator import Emulator
from tests.numerics.ratios import measure
from tests.numerics.regimes import REGIMES, draw

NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
# Each form as the bounds name it and as the emulator plays it.
FORMS: tuple[tuple[Mapping[str, object], Mapping[str, object]], ...] = (
    ({}, {}),
    ({"exp": "exp"}, {"natural": True}),
    ({"exp": "poly"}, {"exp_error": 1500 * 2.0**-24}),
    ({"row_sum": "rounded"}, {"row_sum_rounded": True}),
    ({"scale_ds": "before"}, {"scale_ds_before": True}),
    ({"scale_ds": "operand"}, {"scale_ds_operand": True}),
    ({"ds_from": "p_rounded"}, {"ds_rounded_p": True}),
    ({"prescale_bwd": "k"}, {"prescale_k_bwd": True}),
    ({"max_source": "apart"}, {"max_apart": True}),
    ({"rescale_threshold": 8.0}, {"tau": 8.0}),
    ({"n_splits": 3}, {"n_splits": 3}),
    ({"bwd_lse_base": "e"}, {"convert_lse": True}),
)
# Each is played in some of the regimes.
OTHERS: tuple[tuple[Mapping[str, object], Mapping[str, object]], ...] = (
    ({"normalise": "lse"}, {"normalise": "lse"}),
    ({"normalise": "lse", "exp": "exp", "n_splits": 3}, {"normalise": "lse", "natural": True, "n_splits": 3}),
    ({"normalise": "lse_weights"}, {"normalise": "lse_weights"}),
    ({"normalise": "lse_weights", "p_from": "forward"}, {"normalise": "lse_weights", "keep_p": True}),
    ({"delta_from": "o_fp32"}, {"delta_from": "o_fp32"}),
    ({"s_dtype": "input"}, {"narrow": frozenset({"s"})}),
    ({"pv_dtype": "input"}, {"narrow": frozenset({"pv"})}),
    ({"dp_dtype": "input"}, {"narrow": frozenset({"dp"})}),
    ({"k_smoothed": True}, {"smoothed": True}),
    ({"normalise": "before_cast"}, {"normalise": "before_cast"}),
    (
        {"s_dtype": "input", "dp_dtype": "input", "normalise": "before_cast", "ds_from": "p_rounded"}
        | {"delta_from": "p", "p_from": "forward", "scale_ds": "before"},
        {"narrow": frozenset({"s", "dp"}), "normalise": "before_cast", "ds_rounded_p": True}
        | {"delta_from": "p", "keep_p": True, "scale_ds_before": True},
    ),
    ({"delta_from": "p", "p_from": "lse"}, {"delta_from": "p"}),
    ({"delta_from": "p", "p_from": "forward"}, {"delta_from": "p", "keep_p": True}),
    ({"delta_from": "o", "p_from": "forward"}, {"keep_p": True}),
)


def assert_clean(ratios: dict[str, float]) -> None:
    over = {name: value for name, value in ratios.items() if name not in ("exempt", "vague") and not value < 1}
    assert not over


# Each regime plays every form in one of the dtypes; in the others it is thorough.
IN_REGIMES = [
    pytest.param(regime, dtype, id=f"{regime}-{NAMES[dtype]}", marks=marks)
    for turn, dtype in enumerate(NAMES)
    for n, regime in enumerate(REGIMES)
    for marks in [[pytest.mark.slow] * (turn > 0 or n % 3 > 0) + [pytest.mark.thorough] * (n % 3 != turn)]
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("regime", "dtype"), IN_REGIMES)
def test_every_form_in_every_regime(regime: str, dtype: torch.dtype) -> None:
    other = OTHERS[(REGIMES.index(regime) + len(NAMES[dtype]) * (dtype == torch.bfloat16)) % len(OTHERS)]
    for seed, (declared, played) in enumerate((*FORMS, other)):
        block = (16, 32)[seed % 2]
        vis = None if seed % 3 == 0 else torch.ones(33, 48, dtype=torch.bool).tril((0, -5)[seed % 2])
        q, k, v, do = draw(regime, dtype, (1, 4, 2, 33, 48, 32, 16), seed)
        dlse = torch.randn(1, 4, 33, generator=torch.Generator().manual_seed(seed)) if seed % 2 else None
        scale = (32**-0.5, -(32**-0.5), 0.0, 1e-40, 1.0)[seed % 5 if seed > 4 else 0]
        kernel = Emulator(dtype=dtype, scale=scale, block_n=block, ulps=seed % 3 - 1, **played)  # type: ignore[arg-type]
        form = Form(block_n=block, key_order="ascending", architecture="ieee", **declared)  # type: ignore[arg-type]
        assert_clean(measure(kernel, q, k, v, do, scale=scale, vis=vis, dlse=dlse, form=form))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("regime", REGIMES)
def test_truncating_matrix_unit(regime: str) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v, do = draw(regime, dtype, (1, 1, 1, 16, 32, 16, 8), 5)
        kernel = Emulator(dtype=dtype, scale=0.25, matrix_unit=True, ulps=-1)
        assert_clean(
            measure(kernel, q, k, v, do, scale=0.25, form=Form(block_n=16, key_order="ascending", architecture="sm_80"))
        )


@pytest.mark.parametrize("regime", REGIMES)
def test_truncated_tf32_operands(regime: str) -> None:
    q, k, v, do = draw(regime, torch.float32, (1, 2, 1, 24, 40, 16, 8), 6)
    assert_clean(
        measure(Emulator(dtype=torch.float32, scale=0.25, tf32=True), q, k, v, do, scale=0.25, form=Form(dot="tf32"))
    )


def test_ordinary_data_leave_nothing_exempt_or_uninformative() -> None:
    for dtype in NAMES:
        q, k, v, do = draw("normal", dtype, (1, 2, 1, 48, 48, 32, 32), 1)
        ratios = measure(Emulator(dtype=dtype, scale=32**-0.5), q, k, v, do, scale=32**-0.5)
        assert ratios["exempt"] == 0.0
        assert ratios["vague"] == 0.0

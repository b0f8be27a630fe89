"""A search for values and error directions that exceed a bound finds none, in forms that are seldom met too (`benchmarks/climb.py` searches longer)."""

import dataclasses

import pytest
import torch

from flashverify.numerics import BoundInputs, Form
from tests.fast_tier import fast_one_in
from tests.numerics.climbing import climb
from tests.numerics.formed_backward import FormedKernel
from tests.numerics.ratios import measure
from tests.numerics.regimes import draw

RARE = (
    {"grad_accum": "bf16", "grad_accum_of": "all"},
    {"grad_accum": "fp16", "grad_accum_of": "dq", "dtype": "fp32"},
    {"gqa_partial": "input", "dtype": "bf16"},
    {"normalise": "every_block", "n_splits": 1},
    {"dot": "tf32x3", "dtype": "fp32", "architecture": "sm_90"},
    {"scale_ds": "operand", "architecture": "ieee"},
    {"dim": 128, "dtype": "fp16"},
    {"n_splits": 3, "partial_dtype": "input", "dtype": "bf16"},
    {"dp_dtype": "input", "dp_init": "minus_delta", "dtype": "bf16"},
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fixed", fast_one_in(3, RARE, ids="-".join))
def test_a_form_that_is_seldom_met_holds(fixed: dict[str, object]) -> None:
    for number in range(2):
        found = climb(number, 3, **fixed)
        assert all(ratio <= 1 for ratio in found.worst.values()), (number, found.form, found.worst)


@pytest.mark.slow
def test_no_climb_exceeds_a_bound_and_some_come_close_to_each() -> None:
    worst: dict[str, float] = {}
    for number in range(20):
        found = climb(number, 3)
        assert all(ratio <= 1 for ratio in found.worst.values()), (number, found.form, found.worst)
        worst |= {name: max(ratio, worst.get(name, 0.0)) for name, ratio in found.worst.items()}
    assert {"dbias", "dsink", "dv!"} < set(worst)
    assert min(worst[name] for name in ("o", "dq|", "dk|", "dv|")) > 0.4
    assert worst["lse"] > 0.5


def test_a_bound_without_one_of_its_terms_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: the exponential is taken for exact."""
    true = BoundInputs.coefficients
    monkeypatch.setattr(
        BoundInputs, "coefficients", lambda problem: dataclasses.replace(true(problem), theta_fwd=0.0, theta_bwd=0.0)
    )
    assert max(max(climb(number, 2, exp="poly").worst.values()) for number in range(2)) > 1


def test_a_narrow_dp_that_starts_at_minus_delta_rounds_delta_too() -> None:
    """Keys of small V have a dP far below delta, so that the rounding of dP - delta exceeds that of dP."""
    form = Form(
        dp_dtype="input", dp_init="minus_delta", delta_from="o", p_from="lse", gap_c=1.0, kappa=2.0, block_n=16, architecture="ieee"
    )  # fmt: skip
    tensors = draw("v_constant", torch.bfloat16, (1, 2, 1, 8, 24, 16, 16), 1)
    tensors[2][:, :, ::2] *= 2.0**-8
    bias = torch.zeros(1, 2, 8, 24, dtype=torch.bfloat16)
    kernel = FormedKernel(form=form, dtype=torch.bfloat16, scale=0.25, bias=bias)
    ratios = measure(
        kernel, *tensors, scale=0.25, form=form, features={"biases": (bias,)}, bias_shape=tuple(bias.shape)
    )
    assert all(ratio <= 1 for name, ratio in ratios.items() if name not in ("exempt", "vague"))
    assert ratios["dbias|"] > 0.6


def test_parts_of_a_bias_gradient_that_leave_their_format_make_its_sum_exempt() -> None:
    fixed = {"grad_accum": "fp16", "grad_accum_of": "dq"}
    found = climb(3_000_001, 3, **fixed)
    assert (found.form.dbias_partial, found.dtype) == ("input", torch.float16)
    assert found.evaluations == 3
    assert all(ratio <= 1 for ratio in found.worst.values()), found.worst


@pytest.mark.parametrize("number", [40_000_565, 40_001_807], ids=["an infinite P", "a P that is infinite when rounded"])
def test_a_delta_that_sums_weights_is_exempt_where_one_may_be_infinite(number: int) -> None:
    found = climb(number, 12)
    assert found.form.delta_from == "p"
    assert all(ratio <= 1 for ratio in found.worst.values()), found.worst

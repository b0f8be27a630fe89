"""The mpmath oracle: closed forms, conventions, and agreement with float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import mp
from torch import Tensor

from flashverify_oracles import (
    ExactAttention,
    abs_difference,
    backward,
    exact_attention,
    forward,
    max_abs_difference,
)
from tests.oracles.exact_problems import draw

INF, NAN = math.inf, math.nan


def differences(x: dict[str, Tensor], scale: float, visible: Any, **options: Any) -> dict[str, float]:
    fwd = forward(x["q"], x["k"], x["v"], scale=scale, visible=visible)
    if options.pop("conditional", False):
        options |= {"given_o": fwd.o.to(x["q"].dtype), "given_lse": fwd.lse.float()}
    bwd = backward(x["q"], x["k"], x["v"], x["do"], scale=scale, visible=visible, forward=fwd, **options)
    exact = exact_attention(x["q"], x["k"], x["v"], x["do"], scale=scale, visible=visible, **options)
    return {
        name: max_abs_difference(array, getattr(fwd if name in ("o", "lse") else bwd, name))
        for name, array in exact.arrays()
    }


SIZES = [(1, 1, 1, 4, 4, 8, 8), (2, 4, 2, 3, 6, 5, 2), (1, 3, 1, 5, 3, 2, 4)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("scale", [0.35, -0.35, 0.0, 20.0])
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_float64_agrees(sizes: tuple[int, ...], scale: float, conditional: bool, dtype: torch.dtype) -> None:
    x = draw(0, sizes, dtype)

    worst = differences(x, scale, x["visible"], dlse=x["dlse"], conditional=conditional)

    # Logits up to about 200 and gradients up to about 1e3: some 1e4 units of 2**-53 at the most.
    assert max(worst.values()) < 2e-12, worst


@pytest.mark.parametrize("magnitude", [1e3, 1e5])
def test_float64_agrees_at_logits_up_to_1e5(magnitude: float) -> None:
    x = draw(1, (1, 2, 1, 5, 5, 4, 4), torch.float32)
    x["q"] = x["q"] * magnitude

    worst = differences(x, 1.0, torch.ones(5, 5, dtype=torch.bool).tril(), dlse=x["dlse"])

    # An error of some units in the last place of the logit is a relative error of P.
    assert worst["lse"] < 16 * magnitude * 2.0**-50
    assert worst["o"] < 64 * magnitude * 2.0**-50
    assert max(worst["dq"], worst["dk"], worst["dv"]) < 1e3 * magnitude**2 * 2.0**-50


def test_rows_that_see_nothing() -> None:
    x = draw(3, (1, 2, 1, 3, 4, 2, 2), torch.float32)

    exact = exact_attention(x["q"], x["k"], x["v"], x["do"], scale=0.5, visible=x["visible"], dlse=x["dlse"])

    assert all(value == -INF for value in exact.lse[:, :, 0].flat)
    for array in (exact.o, exact.delta, exact.dq):
        assert not any(array[:, :, 0].flat)


@pytest.mark.parametrize(
    "sizes",
    [(0, 2, 1, 3, 3, 4, 4), (1, 0, 0, 3, 3, 4, 4), (1, 2, 1, 0, 3, 4, 4), (1, 2, 1, 3, 0, 4, 4), (1, 2, 1, 3, 3, 0, 0)],
)
def test_sizes_of_zero(sizes: tuple[int, ...]) -> None:
    B, Hq, Hkv, Sq, Sk, D, Dv = sizes
    q, k, v, do = (
        torch.ones(B, Hq, Sq, D),
        torch.ones(B, Hkv, Sk, D),
        torch.ones(B, Hkv, Sk, Dv),
        torch.ones(B, Hq, Sq, Dv),
    )
    fwd = forward(q, k, v, scale=0.5)
    bwd = backward(q, k, v, do, scale=0.5, forward=fwd)

    for name, array in exact_attention(q, k, v, do, scale=0.5).arrays():
        assert max_abs_difference(array, getattr(fwd if name in ("o", "lse") else bwd, name)) < 1e-15


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize(("name", "index"), [("q", 1), ("k", 2), ("v", 3), ("do", 1), ("dlse", 2), ("k", 0), ("v", 0)])
@pytest.mark.parametrize("conditional", [False, True])
def test_both_oracles_say_nan_of_the_same_elements(poison: float, name: str, index: int, conditional: bool) -> None:
    x = draw(4, (1, 2, 1, 4, 5, 3, 3), torch.float32)
    x["visible"][..., 0] = False  # key 0 is seen by no row
    x[name][0, 0, index] = poison

    worst = differences(x, 0.5, x["visible"], dlse=x["dlse"], conditional=conditional)

    assert max(worst.values()) < 1e-13, worst


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_both_oracles_agree_on_a_given_log_sum_exp_that_is_no_number(value: float) -> None:
    x = draw(5, (1, 2, 1, 4, 5, 3, 3), torch.float32)
    fwd = forward(x["q"], x["k"], x["v"], scale=0.5)
    given = fwd.lse.clone()
    given[0, 0, 2] = value
    bwd = backward(x["q"], x["k"], x["v"], x["do"], scale=0.5, forward=fwd, given_lse=given)
    exact = exact_attention(x["q"], x["k"], x["v"], x["do"], scale=0.5, given_lse=given)

    for name in ("delta", "dq", "dk", "dv"):
        assert max_abs_difference(getattr(exact, name), getattr(bwd, name)) < 1e-13


def test_a_callable_mask_and_its_tensor_mean_the_same() -> None:
    x = draw(6, (1, 1, 1, 4, 4, 2, 2), torch.float32)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()

    called = exact_attention(x["q"], x["k"], x["v"], scale=1.0, visible=lambda rows, keys: causal[rows, keys])
    plain = exact_attention(x["q"], x["k"], x["v"], scale=1.0, visible=causal)

    assert bool((called.o == plain.o).all())
    assert called.dq is None


def test_differences_are_a_census_first() -> None:
    exact = np.array([mp.mpf(1), mp.inf, mp.inf, mp.nan, mp.nan, mp.mpf(2), -mp.inf], dtype=object)
    approximate = torch.tensor([1.5, INF, -INF, NAN, 0.0, NAN, -INF], dtype=torch.float64)

    assert abs_difference(exact, approximate).tolist() == [0.5, 0.0, INF, 0.0, INF, INF, 0.0]
    with pytest.raises(ValueError, match=r"approximate must have the shape \(7,\), got \(3,\)"):
        max_abs_difference(exact, approximate[:3])


Q = torch.zeros(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": Q.int()}, TypeError, "q must be a floating tensor, got torch.int32"),
        ({"k": Q[0]}, ValueError, "k must have 4 dimensions"),
        ({"v": Q.expand(2, 2, 3, 4)}, ValueError, "must agree"),
        ({"q": torch.zeros(1, 3, 3, 4)}, ValueError, "Hq must be a multiple of Hkv, got Hq=3, Hkv=2"),
        ({"scale": INF}, ValueError, "scale must be finite, got inf"),
        ({"visible": torch.ones(3, 3)}, TypeError, "visible must give a tensor of dtype torch.bool"),
        ({"visible": torch.ones(4, 3) > 0}, ValueError, r"visible must broadcast to \(1, 2, 3, 3\), got \(4, 3\)"),
        ({"dlse": Q[..., 0]}, ValueError, "dlse is given without do"),
        ({"do": Q[..., :2]}, ValueError, r"do must have the shape \(1, 2, 3, 4\)"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"q": Q, "k": Q, "v": Q, "scale": 1.0} | change

    with pytest.raises(error, match=message):
        exact_attention(**arguments)


def test_absent_gradients_are_none() -> None:
    exact = exact_attention(Q, Q, Q, scale=1.0)

    assert isinstance(exact, ExactAttention)
    assert [name for name, _ in exact.arrays()] == ["o", "lse"]

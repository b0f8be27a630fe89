"""The values and the bounds of one problem: modes, units, empty rows, and the two oracles side by side."""

import math

import pytest
import torch
from torch import Tensor

from flashverify.numerics import Form
from flashverify.outputs import COMMON_GRADIENTS
from flashverify.truth import Inputs, Truth, exact_values, float64_values


def problem(*, mask: bool = True) -> Inputs:
    gen = torch.Generator().manual_seed(3)

    def randn(*size: int) -> Tensor:
        return torch.randn(*size, generator=gen).half()

    vis = torch.ones(5, 7, dtype=torch.bool).tril()
    vis[0] = False
    return Inputs(
        q=randn(1, 4, 5, 8), k=randn(1, 2, 7, 8), v=randn(1, 2, 7, 6), scale=-0.3, visible=vis if mask else None,
        do=randn(1, 4, 5, 6), dlse=randn(1, 4, 5).float(),
    )  # fmt: skip


def test_an_oracle_that_rounds_once_is_within_every_bound() -> None:
    truth = Truth(problem(), "fp16", Form())
    found = truth.forward() | truth.backward()
    assert set(found) == {"o", "lse", *COMMON_GRADIENTS}
    for name, (value, bound) in found.items():
        rounded = value.half() if name not in ("lse", "delta") else value.float()
        live = value.isfinite()
        assert bool(((rounded.double() - value).abs() <= bound.total)[live].all()), name
        assert bound.bound.shape == value.shape


def test_lse_in_base_2_is_the_natural_one_in_other_units() -> None:
    (e, bound_e), (two, bound_2) = (Truth(problem(), "fp16", Form(lse_base=b)).forward()["lse"] for b in ("e", "2"))
    torch.testing.assert_close(two * math.log(2.0), e, rtol=1e-15, atol=0)
    live = e.isfinite()
    assert bool((bound_2.bound > bound_e.bound)[live].all())


def test_empty_rows_are_exact_whatever_the_subject_stored_there() -> None:
    truth = Truth(problem(), "fp16", Form())
    assert truth.empty_rows[..., 0].all()
    assert not truth.empty_rows[..., 1:].any()
    o, lse = (truth.forward()[name][0].clone() for name in ("o", "lse"))
    before = truth.conditional(o, lse)
    o[:, :, 0], lse[:, :, 0] = 1e30, 5.0
    for name, (value, bound) in truth.conditional(o, lse).items():
        assert torch.equal(value, before[name][0])
        assert torch.equal(bound.bound, before[name][1].bound)
    value, bound = before["dq"]
    assert not value[:, :, 0].any()
    assert not bound.total[:, :, 0].any()


def test_the_conditional_mode_follows_the_given_o_and_lse() -> None:
    truth = Truth(problem(), "fp16", Form())
    o, lse = (truth.forward()[name][0] for name in ("o", "lse"))
    ours, given = truth.backward(), truth.conditional(o + 1, lse)
    assert not torch.allclose(given["delta"][0][..., 1:], ours["delta"][0][..., 1:])
    torch.testing.assert_close(given["dv"][0], ours["dv"][0], rtol=1e-12, atol=1e-12)
    same = truth.conditional(o, lse)
    for name in COMMON_GRADIENTS:
        assert bool((same[name][1].bound <= ours[name][1].bound).all()), name


def test_another_lse_beside_the_same_o_has_gradients_of_its_own() -> None:
    truth, fresh = (Truth(problem(), "fp16", Form()) for _ in range(2))
    o, lse = (truth.forward()[name][0] for name in ("o", "lse"))
    truth.conditional(o, lse)
    other = lse + 0.5
    assert torch.equal(truth.conditional(o, other)["dv"][0], fresh.conditional(o, other)["dv"][0])


@pytest.mark.parametrize("mask", [True, False])
def test_float64_agrees_with_mpmath_within_its_own_error(mask: bool) -> None:
    inputs = problem(mask=mask)
    near, exact = float64_values(inputs), exact_values(inputs)
    truth = Truth(inputs, "fp16", Form())
    for name, (_, bound) in (truth.forward() | truth.backward()).items():
        for got, want, error in zip(
            near[name].flatten().tolist(), exact[name].ravel(), bound.self_error.flatten().tolist(), strict=True
        ):
            assert got == want or abs(got - want) <= error, name


def test_a_callable_mask_is_evaluated_once() -> None:
    inputs, calls = problem(), []
    tensor = inputs.visible

    def visible(rows: slice, keys: slice) -> Tensor:
        calls.append((rows, keys))
        return tensor[rows, keys]

    lazy = Inputs(q=inputs.q, k=inputs.k, v=inputs.v, scale=inputs.scale, visible=visible, do=inputs.do)
    truth = Truth(lazy, "fp16", Form())
    truth.backward()
    assert len(calls) == 1
    assert torch.equal(truth.forward()["o"][0], Truth(inputs, "fp16", Form()).forward()["o"][0])


def test_gradients_need_a_gradient() -> None:
    inputs = problem()
    truth = Truth(Inputs(q=inputs.q, k=inputs.k, v=inputs.v, scale=1.0), "fp16", Form())
    with pytest.raises(AssertionError, match="no dO"):
        truth.backward()

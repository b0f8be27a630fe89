"""With softcap, biases, sink and dropout: what may leave its format exempts what it reaches, and nothing else."""

import math

import pytest
import torch

from flashverify.numerics import BoundInputs, Form, backward_bounds
from flashverify_oracles import float64
from tests.numerics.bounding import bounds, outputs
from tests.numerics.family_problems import everything
from tests.numerics.regimes import draw


def test_rows_that_see_nothing_give_nothing_to_a_sink() -> None:
    tensors, asked = everything(9, 12)
    none = outputs(bounds(*tensors, vis=torch.zeros(9, 12, dtype=torch.bool), bias_shape=(2, 1, 9, 12), **asked))
    assert all(float(x.bound.max()) == 0.0 for x in none.values())


def test_a_bias_that_masks_leaves_the_other_keys_bounded() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v, do = draw("normal", dtype, (1, 1, 1, 8, 12, 16, 8), 1)
        bias = torch.zeros(1, 1, 8, 12, dtype=dtype)
        bias[..., 6:] = torch.finfo(dtype).min
        plain = outputs(
            bounds(
                q,
                k[:, :, :6],
                v[:, :, :6],
                do,
                scale=0.25,
                dtype=str(dtype)[6:].replace("bfloat", "bf").replace("float", "fp"),
            )
        )
        masked = outputs(
            bounds(
                q,
                k,
                v,
                do,
                scale=0.25,
                biases=(bias,),
                dtype=str(dtype)[6:].replace("bfloat", "bf").replace("float", "fp"),
            )
        )
        assert not any(x.exempt.any() or x.uninformative.any() for x in masked.values())
        assert float(masked["lse"].bound.max()) < 1.5 * float(plain["lse"].bound.max())
        bias[..., :6] = torch.finfo(dtype).min
        all_masked = outputs(
            bounds(q, k, v, do, scale=0.25, biases=(bias,), dtype="bf16" if dtype == torch.bfloat16 else "fp32")
        )
        assert all_masked["lse"].exempt.all()


def test_a_sink_that_is_very_negative_is_no_sink() -> None:
    tensors, asked = everything(9, 12)
    none = outputs(bounds(*tensors, bias_shape=(2, 1, 9, 12), **(asked | {"sink": torch.full((4,), -1e4)})))
    asked["sink"] = torch.full((4,), -1.875 * 2.0**127)
    found = outputs(bounds(*tensors, bias_shape=(2, 1, 9, 12), **asked))
    for name, bound in found.items():
        assert not bound.exempt.any(), name
        assert torch.allclose(bound.bound, none[name].bound, rtol=1e-3, atol=1e-30), name
    asked["sink"] = torch.tensor([1.0, -1.0, 1.0, -1.0]) * (1.875 * 2.0**127)
    assert outputs(bounds(*tensors, bias_shape=(2, 1, 9, 12), **asked))["lse"].exempt.any(2).any(0).tolist() == [
        *(True, False, True, False)
    ]


@pytest.mark.parametrize("masked", [False, True])
def test_a_weight_that_may_leave_fp32_exempts_the_bias_and_the_sink_that_it_reaches(masked: bool) -> None:
    # Given an LSE that is 200 too low, exp(S - LSE) is infinite in fp32, however small dO makes the gradients.
    (q, k, v, do), asked = everything(9, 12)
    asked = {"scale": 0.25, "biases": (asked["biases"][0].double(),), "sink": asked["sink"]}
    q, k, v, do = q.double(), k.double(), v.double(), do.double() * 2.0**-140
    truth = float64.forward(q, k, v, visible=None, **asked)
    problem = BoundInputs.of(q, k, v, dtype="fp32", form=Form(masked_ds=masked), visible=None, **asked)
    lse = truth.lse.clone()
    lse[0, 1, 3] -= 200
    g = float64.backward(q, k, v, do, forward=truth, bias_shape=(2, 1, 9, 12), visible=None, **asked)
    values = {"dq": g.dq, "dk": g.dk, "dv": g.dv, "dbias": g.dbias, "dsink": g.dsink}

    found = backward_bounds(problem, do=do, o=truth.o, lse=lse, **values)

    assert found.dbias is not None
    assert found.dsink is not None
    assert found.dbias.exempt[0, 0, 3].all()
    assert int(found.dbias.exempt.sum()) == 12
    assert found.dsink.exempt.tolist() == [False, True, False, False]


@pytest.mark.parametrize(("name", "lost"), [("q", {"dk"}), ("k", {"dq"})])
def test_a_scale_that_multiplies_an_operand_may_make_it_infinite(name: str, lost: set[str]) -> None:
    tensors = dict(zip(("q", "k", "v", "do"), draw("normal", torch.float32, (1, 2, 1, 9, 12, 16, 8), 2), strict=True))
    tensors[name][:, :, 3, 5] = 2.0**100
    for small, size in (("k" if name == "q" else "q", 2.0**-140), ("do", 2.0**-60)):
        tensors[small] *= size  # so that neither a logit nor a gradient overflows
    for scale, expected in (("after", set()), ("operand", lost)):
        found = outputs(bounds(*tensors.values(), scale=2.0**30, dtype="fp32", form=Form(scale_ds=scale)))
        assert {key for key, bound in found.items() if bound.exempt.any()} == expected, scale
    assert found["dq"].exempt.all(-2).all(1).all(0).tolist() == [name == "k" and channel == 5 for channel in range(16)]


@pytest.mark.parametrize(("scale_ds", "exempt"), [("after", False), ("operand", True), ("before", True)])
def test_a_sum_of_scaled_terms_leaves_its_accumulator_earlier(scale_ds: str, exempt: bool) -> None:
    q, k, v, do = draw("normal", torch.float32, (1, 1, 1, 9, 12, 16, 8), 2)
    found = outputs(
        bounds(q * 2.0**-140, k * 2.0**80, v, do * 2.0**20, scale=2.0**30, dtype="fp32", form=Form(scale_ds=scale_ds))
    )

    assert bool(found["dq"].exempt.any()) is exempt


def test_a_tiny_scale_costs_an_operand_its_bits() -> None:
    q, k, v, do = (x.double() for x in draw("normal", torch.float32, (1, 1, 1, 9, 12, 16, 8), 2))
    k, v, scale = k * 2.0**-40, v * 2.0**40, 2.0**-100
    truth = float64.forward(q, k, v, visible=None, scale=scale)
    g = float64.backward(q, k, v, do, forward=truth, visible=None, scale=scale)
    p = torch.exp(q @ k.mT * scale - truth.lse.unsqueeze(-1))
    ds = p * (do @ v.mT - (do * truth.o).sum(-1, keepdim=True))
    error = (ds @ (k * scale).float().double() - g.dq).abs()  # K times the scale is subnormal in fp32

    ratio = {}
    for scale_ds in ("after", "operand"):
        bound = outputs(bounds(q, k, v, do, scale=scale, dtype="fp32", form=Form(scale_ds=scale_ds)))["dq"]
        ratio[scale_ds] = float((error / bound.bound).max())
    assert ratio["operand"] < 1 < ratio["after"]


def test_an_infinite_bias_exempts_its_row() -> None:
    (q, k, v, do), asked = everything(9, 12)
    asked["biases"][0][0, 0, 3, 5] = -math.inf
    found = outputs(bounds(q, k, v, do, bias_shape=(2, 1, 9, 12), **asked))
    assert found["lse"].exempt[0, :, 3].all()
    assert int(found["lse"].exempt.sum()) == 4
    assert found["dbias"].exempt[0, 0, 3].all()
    assert not found["dbias"].exempt[1].any()
    assert found["dsink"].exempt.all()

"""The two oracles on softcap, biases, sinks and dropout: each feature, random combinations, and what is not finite."""

import math
import random
from typing import Any

import pytest
import torch
from mpmath import mp

from flashverify_oracles import exact_attention
from tests.oracles.features import FEATURES, SIZES, differences, draw, options_of

INF, NAN = math.inf, math.nan


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("conditional", [False, True])
def test_float64_agrees_on_each_feature(name: str, sizes: tuple[int, ...], conditional: bool) -> None:
    x, options = draw(1, sizes, torch.float32), options_of({name}, 2, sizes)
    shape = (1, sizes[1], *sizes[3:5])

    worst = differences(x, 0.7, options, bias_shape=shape, conditional=conditional)

    # Logits up to about 10, sums of some ten terms up to about 10: some 1e2 units of 2**-53.
    assert max(worst.values()) < 2e-13, worst


@pytest.mark.slow
def test_float64_agrees_on_random_combinations() -> None:
    rng = random.Random(3)
    for case in range(40):
        sizes = rng.choice(SIZES)
        names = {name for name in FEATURES if rng.random() < 0.6}
        dtype = rng.choice([torch.float16, torch.bfloat16, torch.float32])
        x, options = draw(case, sizes, dtype), options_of(names, case, sizes)
        shape = (rng.choice([1, sizes[0]]), rng.choice([1, sizes[1]]), *sizes[3:5])
        scale, conditional = rng.choice([0.0, 0.3, -1.0, 8.0]), rng.random() < 0.5

        worst = differences(x, scale, options, bias_shape=shape, conditional=conditional)

        assert max(worst.values()) < 2e-12, (case, sorted(names), worst)


@pytest.mark.parametrize("sink", [-1e4, -700.0, 0.0, 700.0, 1e4])
@pytest.mark.parametrize("conditional", [False, True])
def test_float64_agrees_on_extreme_sinks(sink: float, conditional: bool) -> None:
    x = draw(4, (1, 2, 1, 3, 4, 3, 3), torch.float32)

    worst = differences(x, 0.7, {"sink": torch.tensor([sink, 1.0])}, conditional=conditional)

    # A log-sum-exp of 1e4, stored in fp32, changes P by a factor of up to exp(2**-11).
    assert worst.pop("lse") <= abs(sink) * 2.0**-52 + 1e-14
    assert max(worst.values()) < 1e-13 * max(1.0, abs(sink)), worst


@pytest.mark.parametrize("cap", [1e-3, 0.1, 1e6])
@pytest.mark.parametrize("scale", [0.01, 5.0])
def test_float64_agrees_on_extreme_softcaps(cap: float, scale: float) -> None:
    x = draw(5, (1, 2, 1, 3, 4, 3, 3), torch.float32)

    worst = differences(x, scale, {"softcap": cap}, bias_shape=(3, 4))

    assert max(worst.values()) < 1e-12, worst


def test_the_slope_of_a_saturated_cap_keeps_its_relative_accuracy() -> None:
    # One key with P = 1/2 beside an equal one; t / cap = 200: 1 - tanh^2 = 4 exp(-400) to 170 digits.
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k, v = torch.tensor([200.0, -200.0]).view(1, 1, 2, 1), torch.tensor([1.0, 0.0]).view(1, 1, 2, 1)

    exact = exact_attention(one, k, v, one, scale=1.0, softcap=1.0)

    with mp.workprec(400):
        p = 1 / (1 + mp.exp(-2))
        expected = p * (1 - p) / mp.cosh(200) ** 2
        assert abs(exact.dk.flat[0] / expected - 1) < mp.ldexp(1, -90)
        assert exact.dk.flat[1] == -exact.dk.flat[0]


def test_closed_form_of_one_key_and_a_sink() -> None:
    # P = e / (1 + e) for a logit of 1 and a sink of 0; half of it is kept by dropout 1/2, doubled: o = 2 P v.
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    options: dict[str, Any] = {"sink": torch.zeros(1), "keep": torch.ones(1, dtype=torch.bool), "dropout": 0.5}

    exact = exact_attention(one, one, one, one, scale=0.5, biases=[0.5 * one], **options, bias_shape=(1, 1, 1, 1))

    with mp.workprec(200):
        p = mp.e / (1 + mp.e)
        slope = 2 * p * (1 - p)
        expected = {
            "o": 2 * p,
            "lse": mp.log(1 + mp.e),
            "delta": 2 * p,
            "dq": slope / 2,
            "dk": slope / 2,
            "dv": 2 * p,
            "dbias": slope,
            "dsink": -slope,
        }
        for name, array in exact.arrays():
            assert abs(array.item() - expected[name]) <= mp.ldexp(1, -180), name


@pytest.mark.one_in(3)
@pytest.mark.parametrize("poison", [NAN, INF, -INF])
@pytest.mark.parametrize("name", ["q", "k", "v", "do", "dlse", "bias", "sink", "unseen bias", "dropped v"])
@pytest.mark.parametrize("given", [(), ("given_o",), ("given_lse",), ("given_o", "given_lse")])
def test_both_oracles_say_nan_of_the_same_elements(poison: float, name: str, given: tuple[str, ...]) -> None:
    sizes = (1, 2, 1, 4, 5, 3, 3)
    x, options = draw(6, sizes, torch.float32), options_of(("softcap", "sink", "dropout"), 7, sizes)
    bias = torch.zeros(1, 2, 4, 5)
    options["biases"] = [bias]
    x["visible"][..., 0], x["visible"][:, :, 1, 1:] = False, True
    options["keep"][:, :, 1, 2] = True
    more = {
        "given_o": torch.ones_like(x["do"]),
        "given_lse": torch.full_like(x["dlse"], 2.0),
    }
    if name == "bias":
        bias[0, 1, 1, 2] = poison
    elif name == "unseen bias":
        bias[..., 0] = poison
    elif name == "sink":
        options["sink"][1] = poison
    elif name == "dropped v":
        options["keep"][..., 3] = False
        x["v"][0, 0, 3, 1] = poison
    elif name in ("k", "v"):
        x[name][0, 0, 2, 1] = poison
    else:
        x[name][0, 0, 1] = poison

    worst = differences(x, 0.5, options, bias_shape=(1, 2, 4, 5), **{key: more[key] for key in given})

    assert max(worst.values()) < 1e-12, worst


def test_sizes_of_zero() -> None:
    for sizes in [(0, 2, 1, 3, 3, 4, 4), (1, 0, 0, 3, 3, 4, 4), (1, 2, 1, 0, 3, 4, 4), (1, 2, 1, 3, 0, 4, 4), (1, 2, 1, 3, 3, 0, 0)]:  # fmt: skip
        x = draw(8, sizes, torch.float32)
        options = options_of(("softcap", "alibi", "sink", "dropout"), 9, sizes)
        shape = (sizes[0], sizes[1], *sizes[3:5])

        worst = differences(x, 0.5, options, bias_shape=shape)

        assert max(worst.values()) < 1e-14, worst

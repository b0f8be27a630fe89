"""Softcap, biases, ALiBi, sinks, dropout and split-KV: a correct kernel stays below its bound, and not far below."""

import itertools

import pytest
import torch

from flashverify.numerics import Form
from tests.fast_tier import fast_one_in
from tests.numerics.family import Family
from tests.numerics.family_cases import FEATURES, draw_family
from tests.numerics.ratios import measure
from tests.numerics.regimes import REGIMES, draw


def over(ratios: dict[str, float]) -> dict[str, float]:
    return {name: x for name, x in ratios.items() if name not in ("exempt", "vague") and not x <= 1}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("part", fast_one_in(4, range(8), kept=2))
def test_any_combination(part: int) -> None:
    for seed in range(100 * part, 100 * part + 25):
        drawn = draw_family(seed)
        assert not over(measure(drawn.kernel, *drawn.tensors, **drawn.options)), seed


@pytest.mark.one_in(2)
@pytest.mark.parametrize("feature", fast_one_in(3, FEATURES))
def test_every_feature_alone(feature: str) -> None:
    for seed, regime in enumerate(REGIMES):
        drawn = draw_family(seed, {feature}, regime)
        assert not over(measure(drawn.kernel, *drawn.tensors, **drawn.options)), regime


@pytest.mark.parametrize(
    "pair", fast_one_in(10, (pytest.param(x, id="-".join(x)) for x in itertools.combinations(FEATURES, 2)), kept=2)
)
def test_every_pair_of_features(pair: tuple[str, str]) -> None:
    for seed in range(8):
        drawn = draw_family(1000 + seed, pair)
        assert not over(measure(drawn.kernel, *drawn.tensors, **drawn.options)), seed


@pytest.mark.parametrize("features", [("softcap", "sink"), ("bias", "dropout"), FEATURES], ids="-".join)
def test_truncating_matrix_unit(features: tuple[str, ...]) -> None:
    for seed in range(12):
        drawn = draw_family(2000 + seed, features, "normal")
        kernel, (q, k, v, do) = drawn.kernel, drawn.tensors
        if kernel.dtype == torch.float32:
            continue
        kernel.matrix_unit = True
        drawn.options["form"] = Form(**{**drawn.options["form"].describe()["declared"], "architecture": "sm_80"})
        assert not over(measure(kernel, q, k, v, do, **drawn.options)), seed


SHARP = {
    "softcap": {"softcap": 5.0},
    "saturated": {"softcap": 0.1},
    "bias": {"bias": 1.0},
    "sink": {"sink": 1.0},
    "negligible sink": {"sink": -30.0},
    "dropout": {"p": 0.5},
    "much dropout": {"p": 0.9},
    "all": {"softcap": 5.0, "bias": 1.0, "sink": 1.0, "p": 0.2},
}


@pytest.mark.parametrize("name", SHARP)
def test_the_bound_is_sharp(name: str) -> None:
    asked, (B, H, N, D), dtype = SHARP[name], (2, 4, 64, 32), torch.float16
    best: dict[str, float] = {}
    for seed in range(3):
        gen = torch.Generator().manual_seed(seed)
        q, k, v, do = draw("normal", dtype, (B, H, 2, N, N, D, D), seed)
        bias = (torch.randn(1, H, N, N, generator=gen) * asked["bias"]).to(dtype) if "bias" in asked else None
        sink = torch.randn(H, generator=gen) + asked["sink"] if "sink" in asked else None
        keep = torch.rand(B, H, N, N, generator=gen) >= asked["p"] if "p" in asked else None
        p, biases, softcap = asked.get("p", 0.0), () if bias is None else (bias,), asked.get("softcap")
        kernel = Family(
            dtype=dtype, scale=D**-0.5, block_n=32, ulps=1, softcap=softcap, biases=biases, sink=sink, keep=keep, p=p
        )
        form = Form(block_n=32, architecture="ieee", kappa=2.0, gap_c=1.0, kappa_bias=2.0)
        features = {"softcap": softcap, "biases": biases, "sink": sink, "keep": keep, "dropout": p}
        shape = None if bias is None else tuple(bias.shape)
        ratios = measure(
            kernel, q, k, v, do, scale=D**-0.5, vis=torch.ones(N, N, dtype=torch.bool).tril(), form=form, features=features,
            bias_shape=shape,
        )  # fmt: skip
        assert not over(ratios)
        assert ratios["exempt"] == ratios["vague"] == 0.0
        best = {key: max(x, best.get(key, 0.0)) for key, x in ratios.items()}
    least = {
        "o": 0.4,
        "lse": 0.04,
        "dq": 0.15,
        "dk": 0.15,
        "dv": 0.5,
        "dq|": 0.5,
        "dk|": 0.5,
        "dv|": 0.5,
        "dbias": 0.2,
        "dbias|": 0.5,
    }
    assert not {key: (best[key], x) for key, x in least.items() if key in best and best[key] < x}

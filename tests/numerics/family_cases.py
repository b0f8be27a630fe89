"""Drawn problems for `family`: features, their extremes and their combinations, as the kernel, the oracle and the form have them."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flashverify.numerics import Form
from tests.numerics.family import Family
from tests.numerics.regimes import REGIMES, draw

NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
FEATURES = ("softcap", "bias", "alibi", "sink", "dropout", "splits")


@dataclass(kw_only=True)
class Drawn:
    kernel: Family
    tensors: tuple[Tensor, ...]
    options: dict[str, Any]


def distance(Sq: int, Sk: int) -> Tensor:
    return (torch.arange(Sq)[:, None] - torch.arange(Sk)).abs().double()


def draw_family(seed: int, wanted: Collection[str] | None = None, regime: str | None = None) -> Drawn:
    """One problem; each feature of `wanted`, or each with probability 1/2."""
    r, gen = random.Random(seed), torch.Generator().manual_seed(seed)
    dtype, B, Hkv = r.choice(list(NAMES)), r.choice([1, 2]), r.choice([1, 2])
    Hq = Hkv * r.choice([1, 2])
    Sq, Sk, D, Dv = r.choice([1, 9, 33]), r.choice([8, 33, 48]), r.choice([8, 32]), r.choice([8, 16])
    tensors = draw(regime or r.choice(REGIMES), dtype, (B, Hq, Hkv, Sq, Sk, D, Dv), seed)
    scale = r.choice([D**-0.5] * 3 + [1.0, -0.3])
    chosen = [name for name in FEATURES if (r.random() < 0.5 if wanted is None else name in wanted)]
    features: dict[str, Any] = {}
    played: dict[str, Any] = {"block_n": r.choice([16, 32])}
    form: dict[str, Any] = {"block_n": played["block_n"], "architecture": "ieee"}
    biases: list[Tensor] = []
    if "softcap" in chosen:
        features["softcap"] = played["softcap"] = r.choice([0.1, 1.0, 5.0, 30.0, 50.0, 1e4])
        played["tanh_form"] = form["softcap"] = r.choice(["exp", "exp", "approx"])
        played["slope_form"] = form["softcap_slope"] = r.choice(["square", "product"])
    if "bias" in chosen:
        for _ in range(r.choice([1, 1, 2])):
            shape = (r.choice([1, B]), r.choice([1, Hq]), Sq, Sk)
            biases.append((torch.randn(shape, generator=gen) * r.choice([0, 1e-6, 1, 1, 10, 1e3, 1e4])).to(dtype))
        if r.random() < 0.2:  # as masks are often made
            biases[0][..., ::3] = torch.finfo(dtype).min
    played["biases"], everything = tuple(biases), list(biases)
    if "alibi" in chosen:
        played["slopes"] = torch.tensor([2.0 ** (-8 * (h + 1) / Hq) for h in range(Hq)]) * r.choice([1, 1, 100])
        everything.append(-(played["slopes"].double()[:, None, None] * distance(Sq, Sk)).unsqueeze(0))
    if everything:
        features["biases"] = tuple(everything)
    if "sink" in chosen:
        sink = torch.randn(Hq, generator=gen) * r.choice([1, 1, 10, 1e3]) + r.choice([0, 0, 20, -50])
        features["sink"] = played["sink"] = sink.float()
        played["sink_first"] = r.random() < 0.5
    if "dropout" in chosen:
        features["dropout"] = played["p"] = r.choice([0.1, 0.5, 0.9])
        features["keep"] = played["keep"] = torch.rand(B, Hq, Sq, Sk, generator=gen) >= played["p"]
        played["scale_weights"] = r.choice(["end", "fp32", "input"])
        form["dropout_scale"] = "input" if played["scale_weights"] == "input" else "fp32"
    if "splits" in chosen:
        played["partial"] = r.choice([torch.float32, dtype])
        played["natural_partials"] = r.random() < 0.5
        form["partial_lse_base"] = "e" if played["natural_partials"] else "2"
        form["partial_dtype"] = NAMES[played["partial"]]
        played["n_splits"] = form["n_splits"] = 3
    form["key_order"] = "unknown" if played.get("sink_first") else "ascending"
    vis = None if r.random() < 0.4 else torch.rand(Sq, Sk, generator=gen) < r.choice([0.3, 0.9])
    dlse = torch.randn(B, Hq, Sq, generator=gen) if r.random() < 0.3 else None
    kernel = Family(dtype=dtype, scale=scale, ulps=r.choice([-1, 0, 1]), **played)
    options = {
        "scale": scale, "vis": vis, "dlse": dlse, "form": Form(**form), "features": features,
        "bias_shape": tuple(biases[0].shape) if biases else None,
    }  # fmt: skip
    return Drawn(kernel=kernel, tensors=tensors, options=options)

"""Random small problems for the comparison of the float64 oracle with mpmath."""

import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flashverify.formats import FORMATS
from flashverify_oracles import (
    alibi,
    dropout_keep,
)

DTYPES = {name: entry.dtype for name, entry in FORMATS.items() if entry.of_kernels}
MODES = ("end to end", "conditional")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Case:
    """One attention problem with what the two oracles are asked."""

    label: dict[str, Any]
    q: Tensor
    k: Tensor
    v: Tensor
    do: Tensor
    dlse: Tensor | None
    visible: Tensor | None
    scale: float
    dtype: str
    conditional: bool
    features: dict[str, Any]
    bias_shape: tuple[int, ...] | None


def draw(rng: random.Random) -> Case:
    """A case: shapes up to 8, logits up to 1e5, every kind of mask and feature, values from tiny to large."""
    g = torch.Generator().manual_seed(rng.getrandbits(48))
    hkv, group, B = rng.choice([1, 2]), rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    Sq, Sk = rng.randint(1, 8), rng.randint(1, 8)
    D, Dv = rng.choice([1, 2, 4, 8, 16]), rng.choice([1, 2, 4, 8])
    dtype = rng.choice(list(DTYPES))
    regime = rng.choice(["normal", "logits", "ties", "duplicate keys", "cancelling v", "constant v", "tiny", "one-hot"])

    def values(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    q, k = values(B, hkv * group, Sq, D), values(B, hkv, Sk, D)
    v, do = values(B, hkv, Sk, Dv), values(B, hkv * group, Sq, Dv)
    scale = rng.choice([1.0, -1.0]) / math.sqrt(D)
    if regime == "logits":
        scale *= 10.0 ** rng.uniform(1, 5)
    elif regime == "ties":
        q, k, scale = q.sign() * 4, k.sign() * 4, scale * 10.0 ** rng.uniform(0, 4)
    elif regime == "duplicate keys":
        k = k[:, :, :1].expand_as(k)
    elif regime == "cancelling v":
        v = v * 0.01 + 1000.0
    elif regime == "constant v":
        v = v[:, :, :1].expand_as(v)
    elif regime == "tiny":
        q, v, do = q * 2.0**-12, v * 2.0**-12, do * 2.0**-12
    elif regime == "one-hot":
        scale *= 300.0
    if rng.random() < 0.05:
        scale = 0.0
    mask = rng.choice(["none", "causal top-left", "causal bottom-right", "random", "no key"])
    rows, keys = torch.arange(Sq)[:, None], torch.arange(Sk)
    visible = {
        "none": None,
        "causal top-left": rows >= keys,
        "causal bottom-right": rows + Sk - Sq >= keys,
        "random": torch.rand(B, hkv * group, Sq, Sk, generator=g) < 0.5,
        "no key": (torch.rand(Sq, Sk, generator=g) < 0.8) & (torch.rand(Sq, 1, generator=g) < 0.7),
    }[mask]
    dlse = values(B, hkv * group, Sq) if rng.random() < 0.5 else None
    conditional = rng.random() < 0.4
    q, k, v, do = (x.to(DTYPES[dtype]) for x in (q, k, v, do))
    label = {
        "regime": regime, "mask": mask, "dtype": dtype, "shape": [B, hkv * group, hkv, Sq, Sk, D, Dv], "scale": scale.hex(),
        "dlse": dlse is not None, "mode": MODES[conditional],
    }  # fmt: skip
    features, bias_shape = draw_features(rng, g, (B, hkv * group, Sq, Sk), DTYPES[dtype])
    label["features"] = "+".join(name for name in features if name != "keep") or "none"
    return Case(
        label=label, q=q, k=k, v=v, do=do, dlse=dlse, visible=visible, scale=scale, dtype=dtype, conditional=conditional,
        features=features, bias_shape=bias_shape,
    )  # fmt: skip


def draw_features(
    rng: random.Random, g: torch.Generator, sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> tuple[dict[str, Any], tuple[int, ...] | None]:
    """Softcap, biases, sink and dropout, each in a third of the cases, and the shape of a bias that wants a gradient."""
    B, Hq, Sq, Sk = sizes
    features: dict[str, Any] = {}
    bias_shape = None
    if rng.random() < 1 / 3:
        features["softcap"] = rng.choice([0.1, 1.0, 30.0, 50.0])
    biases = []
    if rng.random() < 1 / 3:
        bias_shape = (rng.choice([1, B]), rng.choice([1, Hq]), Sq, Sk)
        biases.append((torch.randn(bias_shape, generator=g) * 10.0 ** rng.uniform(-2, 3)).to(dtype))
    if rng.random() < 1 / 3:
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / Hq) for h in range(Hq)])
        row, key = torch.arange(Sq).expand(B, -1) + rng.choice([0, Sk - Sq]), torch.arange(Sk).expand(B, -1)
        biases.append(alibi(slopes, row, key))
    if biases:
        features["biases"] = biases
    if rng.random() < 1 / 3:
        features["sink"] = torch.randn(Hq, generator=g) * 10.0 ** rng.uniform(-1, 3)
    if rng.random() < 1 / 3:
        p = rng.choice([2.0**-33, 0.1, 0.5, 0.9])
        row, key = torch.arange(Sq).expand(B, -1), torch.arange(Sk).expand(B, -1)
        sequence = torch.arange(B)[:, None].expand(B, Sq)
        seed, offset = rng.getrandbits(64), rng.getrandbits(32)
        keep = dropout_keep(seed=seed, offset=offset, p=p, heads=Hq, sequence=sequence, row=row, key=key)
        features |= {"keep": keep, "dropout": p}
    return features, bias_shape

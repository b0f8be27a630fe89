"""Random problems for the float64 oracle, and its results side by side."""

import math
from typing import Any

import torch
from torch import Tensor

from flashverify_oracles import Backward, Forward, backward, forward

INF, NAN = math.inf, math.nan


def draw(seed: int, B: int, Hq: int, Hkv: int, Sq: int, Sk: int, D: int, Dv: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    shapes = {"q": (B, Hq, Sq, D), "k": (B, Hkv, Sk, D), "v": (B, Hkv, Sk, Dv), "do": (B, Hq, Sq, Dv)}
    x = {name: torch.randn(shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}
    x["dlse"] = torch.randn(B, Hq, Sq, generator=g, dtype=torch.float64)
    x["visible"] = torch.rand(B, Hq, Sq, Sk, generator=g) < 0.6
    if Sq > 2:
        x["visible"][:, :, 1] = False
    return x


def both(x: dict[str, Tensor], scale: float, visible: Any = None, **options: Any) -> tuple[Forward, Backward]:
    inputs = (x["q"], x["k"], x["v"])
    tile = options.pop("_tile", None)
    fwd = forward(*inputs, scale=scale, visible=visible, _tile=tile)
    return fwd, backward(*inputs, x["do"], scale=scale, visible=visible, forward=fwd, _tile=tile, **options)


def results(fwd: Forward, bwd: Backward) -> dict[str, Tensor]:
    return {
        "o": fwd.o,
        "lse": fwd.lse,
        "row_max": fwd.row_max,
        "delta": bwd.delta,
        "dq": bwd.dq,
        "dk": bwd.dk,
        "dv": bwd.dv,
    }

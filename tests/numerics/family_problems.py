"""A small problem with every feature."""

from typing import Any

import torch
from torch import Tensor

from tests.numerics.regimes import draw


def everything(Sq: int, Sk: int, seed: int = 4) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    gen = torch.Generator().manual_seed(seed)
    q, k, v, do = draw("normal", torch.float16, (2, 4, 2, Sq, Sk, 16, 8), seed)
    bias = torch.randn(2, 1, Sq, Sk, generator=gen).half()
    keep = torch.rand(2, 4, Sq, Sk, generator=gen) > 0.3
    asked = {
        "scale": 0.25,
        "softcap": 3.0,
        "biases": (bias,),
        "sink": torch.randn(4, generator=gen),
        "keep": keep,
        "dropout": 0.3,
    }
    return (q, k, v, do), asked

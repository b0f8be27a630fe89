"""Tensors and random problems for the mpmath oracle."""

import torch
from torch import Tensor


def draw(seed: int, sizes: tuple[int, ...], dtype: torch.dtype) -> dict[str, Tensor]:
    B, Hq, Hkv, Sq, Sk, D, Dv = sizes
    g = torch.Generator().manual_seed(seed)
    shapes = {"q": (B, Hq, Sq, D), "k": (B, Hkv, Sk, D), "v": (B, Hkv, Sk, Dv), "do": (B, Hq, Sq, Dv)}
    x = {name: torch.randn(shape, generator=g).to(dtype) for name, shape in shapes.items()}
    x["dlse"] = torch.randn(B, Hq, Sq, generator=g)
    x["visible"] = torch.rand(B, Hq, Sq, Sk, generator=g) < 0.6
    x["visible"][:, :, 0] = False
    return x

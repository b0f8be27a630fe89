"""Calls of the kernels with their options, eager and compiled, and what they return."""

import torch

from flashverify_kernels import (
    Bitmap,
    BlockMask,
    Configs,
    Dropout,
    LaunchConfig,
    RelativeBias,
    TreeMask,
)

BATCH, HEADS, KV_HEADS, SQ, SK, D, DV = 2, 2, 1, 6, 20, 16, 8
PARENTS = [-1, 0, 0, 1, 1, 2]
TILES = LaunchConfig(block_m=16, block_n=32)


def draw(*shape, dtype=torch.float32, seed=0):
    rng = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=rng, device="cpu").to(torch.get_default_device(), dtype)


def inputs(dtype=torch.float32, layout="bhsd"):
    shapes = ((BATCH, HEADS, SQ, D), (BATCH, KV_HEADS, SK, D), (BATCH, KV_HEADS, SK, DV))
    found = [draw(*shape, dtype=dtype, seed=n) for n, shape in enumerate(shapes)]
    if layout == "bshd":
        found = [x.transpose(1, 2).contiguous() for x in found]
    return [x.requires_grad_() for x in found]


def bits(*shape):
    return draw(*shape, seed=7) > 0


def lengths(*values):
    return torch.tensor(values, dtype=torch.int32)


BUCKETS = torch.tensor([1, 1, 0, 2, 3], dtype=torch.int32)
VARIANTS = {
    "plain": lambda dtype: {},
    "causal": lambda dtype: {"causal": "bottom-right", "scale": -0.5, "softcap": 3.0},
    "window": lambda dtype: {"window": (3, None), "causal": "top-left", "config": Configs(dq=TILES)},
    "lengths": lambda dtype: {"key_lengths": lengths(0, 13), "query_lengths": lengths(6, 4)},
    "prefix": lambda dtype: {"causal": "top-left", "prefix_lengths": lengths(4, 13)},
    "tree": lambda dtype: {"tree": TreeMask.from_parents(PARENTS, torch.get_default_device())},
    "bitmap": lambda dtype: {"bitmap": Bitmap.from_bool(bits(1, HEADS, SQ, SK)), "sink": draw(HEADS, seed=8)},
    "blocks": lambda dtype: {"blocks": BlockMask.from_bool(bits(BATCH, 1, 1, 2), rows=16, keys=16)},
    "alibi": lambda dtype: {"alibi_slopes": torch.tensor([0.5, 0.25]), "causal": "bottom-right"},
    "bias": lambda dtype: {"bias": draw(1, HEADS, SQ, SK, dtype=dtype, seed=9), "sink": draw(HEADS, seed=8)},
    "relative": lambda dtype: {
        "relative_bias": RelativeBias(draw(HEADS, 4, seed=10), BUCKETS),
        "causal": "bottom-right",
    },
    "dropout": lambda dtype: {"dropout": Dropout(0.3, seed=2**64 - 5, offset=2**32 - 1)},
}


def options_of(variant, dtype):
    options = VARIANTS[variant](dtype)
    for name in {"bias", "sink"} & options.keys():
        options[name].requires_grad_()
    if "relative_bias" in options:
        options["relative_bias"].table.requires_grad_()
    return options

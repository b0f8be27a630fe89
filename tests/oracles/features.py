"""Problems with every feature of the logits and weights, and attention written down plainly, for autograd."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from flashverify_oracles import Backward, Forward, backward, exact_attention, forward, max_abs_difference

FEATURES = ("softcap", "bias", "alibi", "sink", "dropout")
SIZES = [(1, 1, 1, 4, 4, 3, 3), (2, 4, 2, 3, 6, 5, 2), (1, 3, 1, 5, 3, 2, 4), (2, 2, 1, 1, 5, 4, 1)]


def draw(seed: int, sizes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """q, k, v, do of `dtype`, dlse, and a mask whose row 0 sees nothing where there are several rows."""
    B, Hq, Hkv, Sq, Sk, D, Dv = sizes
    g = torch.Generator().manual_seed(seed)
    shapes = {"q": (B, Hq, Sq, D), "k": (B, Hkv, Sk, D), "v": (B, Hkv, Sk, Dv), "do": (B, Hq, Sq, Dv)}
    x = {name: torch.randn(shape, generator=g, dtype=torch.float64).to(dtype) for name, shape in shapes.items()}
    x["dlse"] = torch.randn(B, Hq, Sq, generator=g, dtype=torch.float64)
    x["visible"] = torch.rand(B, Hq, Sq, Sk, generator=g) < 0.7
    if Sq > 1:
        x["visible"][:, :, 0] = False
    return x


def options_of(names: tuple[str, ...] | set[str], seed: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Arguments of `forward` for these features; random values, and a random broadcast of the bias and of the kept pairs."""
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    B, Hq, _, Sq, Sk, _, _ = sizes
    options: dict[str, Any] = {"biases": []}
    if "softcap" in names:
        options["softcap"] = rng.choice([0.5, 2.0, 30.0])
    if "bias" in names:
        shape = rng.choice([(B, Hq, Sq, Sk), (1, Hq, Sq, Sk), (B, 1, Sq, Sk), (Sq, Sk), (1, 1, 1, Sk)])
        options["biases"].append(torch.randn(shape, generator=g))
    if "alibi" in names:
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / Hq) for h in range(Hq)])
        distance = (torch.arange(Sq)[:, None] + Sk - Sq - torch.arange(Sk)).abs().double()
        options["biases"].append(lambda rows, keys: -slopes.double()[:, None, None] * distance[rows, keys])
    if "sink" in names:
        options["sink"] = 2 * torch.randn(Hq, generator=g)
    if "dropout" in names:
        options["dropout"] = rng.choice([0.1, 0.5, 0.9])
        options["keep"] = torch.rand(B, Hq, Sq, Sk, generator=g) >= options["dropout"]
    return options


def results(fwd: Forward, bwd: Backward) -> dict[str, Tensor]:
    """Every output by name."""
    named = {name: getattr(fwd, name) for name in ("o", "lse", "row_max")}
    named |= {name: getattr(bwd, name) for name in ("delta", "dq", "dk", "dv", "dbias", "dsink", "drelative_bias")}
    return {name: value for name, value in named.items() if value is not None}


def both(x: dict[str, Tensor], scale: float, options: dict[str, Any], **more: Any) -> tuple[Forward, Backward]:
    """The float64 oracle's forward and backward."""
    tile = more.pop("_tile", None)
    shared = {"scale": scale, "visible": x["visible"], **options, "_tile": tile}
    fwd = forward(x["q"], x["k"], x["v"], **shared)
    return fwd, backward(x["q"], x["k"], x["v"], x["do"], **shared, forward=fwd, dlse=x["dlse"], **more)


def differences(x: dict[str, Tensor], scale: float, options: dict[str, Any], **more: Any) -> dict[str, float]:
    """Largest |float64 - mpmath| of every output; with `conditional`, given a rounded O and LSE."""
    fwd = forward(x["q"], x["k"], x["v"], scale=scale, visible=x["visible"], **options)
    if more.pop("conditional", False):
        more |= {"given_o": fwd.o.to(torch.bfloat16), "given_lse": fwd.lse.float()}
    got = results(*both(x, scale, options, **more))
    exact = exact_attention(
        x["q"], x["k"], x["v"], x["do"], scale=scale, visible=x["visible"], dlse=x["dlse"], **options, **more
    )
    assert {name for name, _ in exact.arrays()} == got.keys() - {"row_max"}
    return {name: max_abs_difference(array, got[name]) for name, array in exact.arrays()}


def naive(
    x: dict[str, Tensor], scale: float, options: dict[str, Any], bias_shape: tuple[int, ...]
) -> dict[str, Tensor]:
    """Every output but delta from whole matrices, differentiated by autograd; a row that sees nothing is cut off the loss."""
    q, k, v = (x[name].double().requires_grad_() for name in "qkv")
    zero_bias = torch.zeros(bias_shape, dtype=torch.float64, requires_grad=True)
    Hq, (Sq, Sk) = q.shape[1], (q.shape[2], k.shape[2])
    group = Hq // k.shape[1]
    s = scale * q @ k.repeat_interleave(group, 1).mT
    if options.get("softcap"):
        s = options["softcap"] * torch.tanh(s / options["softcap"])
    for bias in options["biases"]:
        s = s + (bias(slice(0, Sq), slice(0, Sk)) if callable(bias) else bias).double()
    s = s + zero_bias
    nonempty = x["visible"].any(-1)
    s = torch.where(x["visible"], s, -math.inf)
    inputs = [q, k, v, zero_bias]
    if options.get("sink") is not None:
        sink = options["sink"].double().requires_grad_()
        inputs.append(sink)
        s = torch.cat([s, sink[:, None, None].expand(*s.shape[:3], 1)], -1)
    s = torch.where(nonempty[..., None], s, 0.0)
    p = torch.softmax(s, -1)[..., :Sk]
    if options.get("keep") is not None:
        p = p * options["keep"] / (1 - options["dropout"])
    o = p @ v.repeat_interleave(group, 1) * nonempty[..., None]
    lse = torch.logsumexp(s, -1)
    loss = (o * x["do"]).sum() + (lse * x["dlse"] * nonempty).sum()
    names = ("dq", "dk", "dv", "dbias", "dsink")[: len(inputs)]
    gradients = dict(zip(names, torch.autograd.grad(loss, inputs), strict=True))
    return {"o": o.detach(), "lse": torch.where(nonempty, lse, -math.inf).detach(), **gradients}

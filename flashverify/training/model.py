"""The model: a causal transformer over characters, in float64 outside attention, so that nothing but attention is rounded.

Weights are a list of float64 tensors that hold fp32 numbers. Layers normalise before attention and before two products with a tanh in
between; nothing has an offset. The optimiser is descent with momentum, a smooth function of the gradients: Adam divides by their
size, which turns an error in a gradient near 0 into a step of the other sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.training.attention import Attention
    from flashverify.training.settings import Settings

__all__ = ["Weights", "fp32", "initial", "loss_of", "moved", "names_of"]

Weights = list[torch.Tensor]
_OF_A_LAYER = ("wq", "wk", "wv", "wo", "up", "down")
_OUTSIDE = ("embedding", "position", "head")
_MOMENTUM = 0.9


def names_of(settings: Settings) -> list[str]:
    """The name of each weight: `wq`, `wk`, `wv`, `wo`, `up` and `down` of each layer, and three outside."""
    return [*_OUTSIDE, *(f"{name}{layer}" for layer in range(settings.layers) for name in _OF_A_LAYER)]


def fp32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to fp32, as float64."""
    return x.float().double()


def initial(settings: Settings, characters: int) -> Weights:
    """The weights before the first step, normal with a variance of 1 / fan-in, the same on every device."""
    generator = torch.Generator().manual_seed(settings.seed)
    width = settings.heads * settings.dim
    inside = {"up": (width, 4 * width), "down": (4 * width, width)}
    shapes = [(characters, width), (settings.length, width), (width, characters)]
    shapes += [inside.get(name, (width, width)) for _ in range(settings.layers) for name in _OF_A_LAYER]
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) * shape[0] ** -0.5 for shape in shapes)
    scaled = [
        x * (shape[0] ** 0.5 / 2 if n < 2 else 1.0) for n, (x, shape) in enumerate(zip(drawn, shapes, strict=True))
    ]
    return [fp32(x).to(settings.device) for x in scaled]


def loss_of(weights: Sequence[torch.Tensor], tokens: torch.Tensor, attention: Attention, heads: int) -> torch.Tensor:
    """The sum over all characters of -log of their probability, a scalar.

    Args:
        weights: as `names_of` has them.
        tokens: `[B, S + 1]`.
        attention: what computes O from q, k and v, `[B, H, S, D]` float64.
        heads: H.
    """
    embedding, position, head, *layers = weights
    batch, length = tokens.shape[0], tokens.shape[1] - 1
    x = embedding[tokens[:, :-1]] + position
    for layer in range(len(layers) // len(_OF_A_LAYER)):
        wq, wk, wv, wo, up, down = layers[layer * len(_OF_A_LAYER) : (layer + 1) * len(_OF_A_LAYER)]
        y = _normalised(x)
        q, k, v = ((y @ w).view(batch, length, heads, -1).transpose(1, 2) for w in (wq, wk, wv))
        o = attention(layer, q, k, v)
        x = x + o.transpose(1, 2).reshape(batch, length, -1) @ wo
        x = x + torch.tanh(_normalised(x) @ up) @ down
    logits = _normalised(x) @ head
    chosen = logits.log_softmax(-1).gather(-1, tokens[:, 1:].unsqueeze(-1))
    return -chosen.sum()


def moved(
    weights: Sequence[torch.Tensor], momentum: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], rate: float
) -> tuple[Weights, Weights]:
    """The weights and the momentum after one step of descent, not rounded."""
    momentum = [_MOMENTUM * old + new for old, new in zip(momentum, gradients, strict=True)]
    return [w - rate * m for w, m in zip(weights, momentum, strict=True)], momentum


def _normalised(x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

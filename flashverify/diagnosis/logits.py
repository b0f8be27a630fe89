"""The logits of a problem, pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.truth import Inputs

__all__ = ["logits", "products"]


def products(inputs: Inputs) -> Tensor:
    """The scaled products `[B, Hq, Sq, Sk]`, float64, natural units."""
    keys = inputs.k.double().repeat_interleave(inputs.q.shape[1] // inputs.k.shape[1], dim=1)
    return (inputs.q.double() @ keys.mT).mul_(inputs.scale)


def logits(inputs: Inputs) -> Tensor:
    """The logits `[B, Hq, Sq, Sk]`, float64, natural units, -inf at invisible pairs; without the sink. The pairs must be dense."""
    z = products(inputs)
    if inputs.softcap:
        z = inputs.softcap * torch.tanh(z / inputs.softcap)
    for bias in inputs.biases:
        z = z + bias.double()
    if inputs.visible is not None:
        z = z.masked_fill(~inputs.visible, -torch.inf)
    return z

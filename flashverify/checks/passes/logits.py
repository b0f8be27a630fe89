"""The logits of a problem, pair by pair, as the bounds take them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from flashverify.truth import Inputs

__all__ = ["logits", "modified", "products"]


def products(inputs: Inputs) -> Tensor:
    """The scaled products `[B, Hq, Sq, Sk]`, float64, natural units."""
    keys = inputs.k.double().repeat_interleave(inputs.q.shape[1] // inputs.k.shape[1], dim=1)
    return (inputs.q.double() @ keys.mT).mul_(inputs.scale)


def modified(scaled: Tensor, inputs: Inputs, biases: Iterable[Tensor]) -> Tensor:
    """The scaled products `[B, Hq, Sq, Sk]` after the softcap of `inputs` and finite `biases`, which broadcast to them."""
    from flashverify.numerics.chunk import logits_of

    return logits_of(scaled, inputs.softcap or None, [bias.expand_as(scaled) for bias in biases], None)[0]


def logits(inputs: Inputs) -> Tensor:
    """The logits `[B, Hq, Sq, Sk]`, float64, natural units, -inf at invisible pairs; without the sink. The pairs must be dense."""
    z = modified(products(inputs), inputs, inputs.biases)
    return z if inputs.visible is None else z.masked_fill(~inputs.visible, -math.inf)

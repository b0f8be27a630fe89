"""A training of its own: weights, momentum, and what a step of it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.training.model import Weights, fp32, loss_of, moved

if TYPE_CHECKING:
    from flashverify.training.attention import Attention
    from flashverify.training.settings import Settings

__all__ = ["Training"]


class Training:
    """Weights that learn with any attention.

    Args:
        weights: before the first step.
        settings: of the training.
        rounded: weights are fp32 numbers after every step.
    """

    def __init__(self, weights: Weights, settings: Settings, *, rounded: bool) -> None:
        self.weights, self.momentum = weights, [torch.zeros_like(w) for w in weights]
        self._settings, self._rounded = settings, rounded

    def step(self, tokens: torch.Tensor, attention: Attention) -> tuple[float, tuple[torch.Tensor, ...]]:
        """The summed loss before the step, and the gradients that made it."""
        leaves = [w.detach().requires_grad_() for w in self.weights]
        loss = loss_of(leaves, tokens, attention, self._settings.heads)
        gradients = torch.autograd.grad(loss, leaves)
        characters = tokens[:, 1:].numel()
        weights, self.momentum = moved(
            self.weights, self.momentum, [g / characters for g in gradients], self._settings.rate
        )
        self.weights = [fp32(w) for w in weights] if self._rounded else weights
        return float(loss.detach()), gradients

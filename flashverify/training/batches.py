"""Batches of the text, character by character, the same on every machine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flashverify.training.passages import PASSAGES

if TYPE_CHECKING:
    import torch

    from flashverify.training.settings import Settings

__all__ = ["CHARACTERS", "batch_of"]

CHARACTERS = "".join(sorted(set(PASSAGES)))
_NUMBERS = {character: number for number, character in enumerate(CHARACTERS)}


def batch_of(settings: Settings, step: int) -> torch.Tensor:
    """The characters of one step as numbers, int64 `[B, S + 1]`: character n + 1 is what n shall predict.

    Args:
        settings: of the training.
        step: its number.
    """
    import torch

    drawn, length = random.Random(f"{settings.seed}/{step}"), settings.length
    starts = drawn.sample(range(len(PASSAGES) - length), settings.batch)  # two equal sequences would round alike
    rows = [[_NUMBERS[character] for character in PASSAGES[start : start + length + 1]] for start in starts]
    return torch.tensor(rows, device=settings.device)

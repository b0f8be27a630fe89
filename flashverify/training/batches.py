"""Batches of the text, character by character, the same on every machine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from flashverify.training.passages import PASSAGES

if TYPE_CHECKING:
    import torch

__all__ = ["CHARACTERS", "batch_of"]

CHARACTERS = "".join(sorted(set(PASSAGES)))
_NUMBERS = {character: number for number, character in enumerate(CHARACTERS)}


def batch_of(seed: int, step: int, *, batch: int, length: int, device: str) -> torch.Tensor:
    """The characters of one step as numbers, int64 `[B, S + 1]`: character n + 1 is what n shall predict.

    Args:
        seed: of the training.
        step: its number.
        batch: sequences, B.
        length: characters that are read, S.
        device: of the result.
    """
    import torch

    drawn = random.Random(f"{seed}/{step}")
    starts = [drawn.randrange(len(PASSAGES) - length) for _ in range(batch)]
    rows = [[_NUMBERS[character] for character in PASSAGES[start : start + length + 1]] for start in starts]
    return torch.tensor(rows, device=device)

"""What is seldom there, asked in one quick reduction on the CPU, so that the operations that would handle it are left out.

A GPU is not asked where the wait for its answer costs more than the operations: there the question is answered with no.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["below", "nowhere", "somewhere", "without"]


def nowhere(mask: Tensor) -> bool:
    """Whether no element of a bool mask is known to be true."""
    return not mask.is_cuda and not np.count_nonzero(mask.numpy())  # torch takes twice the time


def somewhere(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether an element of each is not zero, known everywhere; with one wait for a GPU."""
    if any(x.is_cuda for x in tensors):
        return [bool(answer) for answer in torch.stack([x.any() for x in tensors]).tolist()]
    return [bool(np.count_nonzero(x.numpy())) for x in tensors]


def below(x: Tensor, limit: float) -> bool:
    """Whether every element is known to be less than a number; a NaN is not."""
    return not x.is_cuda and (x.numel() == 0 or x.amax().item() < limit)


def without(mask: Tensor, x: Tensor) -> Tensor:
    """`x` with 0 where the mask, which broadcasts to it, is true; `x` itself where that is known to be nowhere."""
    return x if nowhere(mask) else torch.where(mask, 0.0, x)

"""Attention with linear biases: Press, Smith, Lewis, "Train Short, Test Long" (ICLR 2022)."""

from __future__ import annotations

import torch
from torch import Tensor


def alibi(slopes: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """The bias `-slopes[h] * |row - key|`, natural units; exact for fp32 slopes and distances below 2**29.

    Args:
        slopes: `[Hq]` floating.
        row: `[B, rows]` integer positions on the axis of the keys: shifted already where the mask aligns the ends.
        key: `[B, keys]` integer positions.

    Returns:
        `[B, Hq, rows, keys]` float64.

    Raises:
        TypeError: `slopes` is not a floating tensor, or a position is not an integer one.
    """
    if not isinstance(slopes, Tensor) or not slopes.is_floating_point():
        raise TypeError(f"slopes must be a floating tensor, got {getattr(slopes, 'dtype', type(slopes).__name__)}")
    for name, x in (("row", row), ("key", key)):
        if not isinstance(x, Tensor) or x.is_floating_point() or x.dtype == torch.bool:
            raise TypeError(f"{name} must be an integer tensor, got {getattr(x, 'dtype', type(x).__name__)}")
    distance = (row.long()[:, :, None] - key.long()[:, None, :]).abs_()
    return distance.to(torch.float64)[:, None] * -slopes.to(torch.float64)[:, None, None]

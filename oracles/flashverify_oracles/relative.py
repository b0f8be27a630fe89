"""Relative position biases: a table per head, read by the bucket of a signed distance.

Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position Representations" (NAACL 2018) clip distances; Raffel et al., "Exploring
the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (JMLR 2020), T5, give one scalar a head and bucket.
"""

from __future__ import annotations

import torch
from torch import Tensor


def relative_bias(table: Tensor, distance_buckets: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """The bias `table[h, distance_buckets[clamp(key - row, -reach, reach) + reach]]`, natural units; exact.

    Args:
        table: `[Hq, buckets]` floating.
        distance_buckets: `[2 * reach + 1]` integer, in [0, buckets): the bucket of each clipped distance, that of `-reach` first.
        row: `[B, rows]` integer positions on the axis of the keys: shifted already where the mask aligns the ends.
        key: `[B, keys]` integer positions.

    Returns:
        `[B, Hq, rows, keys]` float64.

    Raises:
        TypeError: `table` is not a floating tensor, or another argument is not an integer one.
        ValueError: a shape is wrong, a bucket is not in the table, or the tensors are on several devices.
    """
    if not isinstance(table, Tensor) or not table.is_floating_point():
        raise TypeError(f"table must be a floating tensor, got {getattr(table, 'dtype', type(table).__name__)}")
    if table.ndim != 2:
        raise ValueError(f"table must have the shape [Hq, buckets], got {tuple(table.shape)}")
    buckets = relative_buckets(distance_buckets, row, key)
    if table.device != distance_buckets.device:
        device = distance_buckets.device
        raise ValueError(f"table must be on the device of distance_buckets, {device}, got {table.device}")
    low, high = (int(x) for x in distance_buckets.aminmax())
    if low < 0 or high >= table.shape[1]:
        raise ValueError(f"distance_buckets must be in [0, {table.shape[1]}), got values in [{low}, {high}]")
    return table.to(torch.float64)[:, buckets[:, 0]].transpose(0, 1)


def relative_buckets(distance_buckets: Tensor, row: Tensor, key: Tensor) -> Tensor:
    """The bucket of every pair, `distance_buckets[clamp(key - row, -reach, reach) + reach]`.

    Args:
        distance_buckets: `[2 * reach + 1]` integer: the bucket of each clipped distance, that of `-reach` first.
        row: `[B, rows]` integer positions on the axis of the keys, as in `relative_bias`.
        key: `[B, keys]` integer positions.

    Returns:
        `[B, 1, rows, keys]` int64.

    Raises:
        TypeError: an argument is not an integer tensor.
        ValueError: a shape is wrong, or the tensors are on several devices.
    """
    for name, x, ndim in (("distance_buckets", distance_buckets, 1), ("row", row, 2), ("key", key, 2)):
        if not isinstance(x, Tensor) or x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise TypeError(f"{name} must be an integer tensor, got {getattr(x, 'dtype', type(x).__name__)}")
        if x.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimensions, got {tuple(x.shape)}")
        if x.device != distance_buckets.device:
            device = distance_buckets.device
            raise ValueError(f"{name} must be on the device of distance_buckets, {device}, got {x.device}")
    size = distance_buckets.shape[0]
    if size % 2 == 0:
        raise ValueError(f"distance_buckets must have an odd length 2 * reach + 1, got {size}")
    reach = size // 2
    distance = (key.long()[:, None, :] - row.long()[:, :, None]).clamp_(-reach, reach)
    return distance_buckets.long()[distance.add_(reach)].unsqueeze(1)


def t5_buckets(buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """The buckets of T5, in exact integers, for distances clipped at `max_distance`.

    A side has `n = buckets` entries, or half of them each way if `bidirectional`. Distances below `e = n // 2` have an entry of their
    own; entry `e + k` starts at the smallest distance from `e (max_distance / e)^(k / (n - e))` on. A key ahead of its row reads the
    second half if `bidirectional`, else entry 0.

    Args:
        buckets: number of entries of the table of a head: at least 2, or an even number from 4 on if `bidirectional`.
        max_distance: distance from which the last entry of a side is read; greater than e.
        bidirectional: whether keys ahead of the row are told apart.

    Returns:
        `[2 * max_distance + 1]` int32, for `relative_bias`.

    Raises:
        ValueError: a number is out of its range.
    """
    side = buckets // 2 if bidirectional else buckets
    if side < 2 or (bidirectional and buckets % 2):
        wanted = "an even number from 4 on" if bidirectional else "at least 2"
        raise ValueError(f"buckets must be {wanted} with bidirectional={bidirectional}, got {buckets!r}")
    own = side // 2
    if max_distance <= own:
        raise ValueError(f"max_distance must be greater than {own} with buckets={buckets}, got {max_distance!r}")
    parts = side - own
    behind = list(range(own))
    k = 0
    for n in range(own, max_distance + 1):
        while k < parts - 1 and n**parts * own ** (k + 1) >= max_distance ** (k + 1) * own**parts:
            k += 1
        behind.append(own + k)
    ahead = [side + bucket for bucket in behind] if bidirectional else [0] * len(behind)
    return torch.tensor(behind[:0:-1] + behind[:1] + ahead[1:], dtype=torch.int32)

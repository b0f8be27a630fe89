"""A relative position bias: a table per head, read by the bucket of a signed distance; and what the kernels read of it."""

from dataclasses import dataclass

import torch

_LEAST = 3


@dataclass(frozen=True, eq=False, slots=True)
class RelativeBias:
    """The bias `table[h, distance_buckets[clamp(j - position, -reach, reach) + reach]]` of key j, as in T5.

    Attributes:
        table: `[Hq, buckets]` fp32, natural units; differentiable.
        distance_buckets: `[2 * reach + 1]` int32, from 0 to buckets - 1: the bucket of each clipped distance, that of `-reach` first.
    """

    table: torch.Tensor
    distance_buckets: torch.Tensor


def by_distance(relative: RelativeBias) -> torch.Tensor:
    """The bias of each clipped distance, `[Hq, 2 * reach + 1]` fp32 contiguous with a reach of at least 1; an exact copy."""
    return relative.table[:, clamped_buckets(relative).long()].contiguous()


def clamped_buckets(relative: RelativeBias) -> torch.Tensor:
    """The buckets, clamped to those that there are, of a reach of at least 1: Triton makes a constant of a width of 1."""
    buckets = relative.distance_buckets.clamp(0, relative.table.shape[1] - 1)
    return buckets.expand(_LEAST) if buckets.shape[0] < _LEAST else buckets

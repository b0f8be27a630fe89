"""Sums over the pairs of each bucket of a head: the gradient of a table that pairs read by bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify_oracles._pairs import Pairs, PairSource, make_pairs

if TYPE_CHECKING:
    import torch

    from flashverify_oracles._inputs import CheckedInputs

# Elements of the sums of single rows held at once: 32 MiB in float64.
_ROW_SUMS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """The bucket of every pair.

    Attributes:
        pairs: integers in [0, count); each tile is checked when it is read.
        count: number of buckets of one head.
    """

    pairs: Pairs
    count: int

    def zeros(self, problem: CheckedInputs) -> torch.Tensor:
        """A sum of nothing, `[Hq, count]` float64."""
        _, Hkv, g = problem.heads
        return problem.q.new_zeros(Hkv * g, self.count)

    def add(self, total: torch.Tensor, x: torch.Tensor, rows: slice, keys: slice) -> None:
        """Adds a tile `x` `[B, Hkv, g, rows, keys]` to `total` `[Hq, count]`: the sum of each row, then the sum of the rows.

        Raises:
            ValueError: a bucket is not in [0, count).
        """
        buckets = self.pairs.tile(rows, keys).long()
        if buckets.numel() and not 0 <= int(buckets.min()) <= int(buckets.max()) < self.count:
            found = f"[{int(buckets.min())}, {int(buckets.max())}]"
            raise ValueError(f"{self.pairs.name} must be in [0, {self.count}), got values in {found}")
        buckets = buckets.expand(x.shape)
        B, Hkv, g, size, _ = x.shape
        step = max(1, _ROW_SUMS // max(1, B * Hkv * g * self.count))
        for start in range(0, size, step):
            part = x[..., start : start + step, :]
            by_row = x.new_zeros(*part.shape[:-1], self.count)
            by_row.scatter_add_(-1, buckets[..., start : start + step, :], part)
            total += by_row.sum((0, 3)).view(total.shape)


def make_buckets(source: PairSource | None, count: int | None, problem: CheckedInputs) -> Buckets | None:
    """Check the buckets of a problem; None where none are given.

    Raises:
        TypeError: `relative_buckets` is neither an integer tensor nor callable, or `bucket_count` no integer.
        ValueError: one is given without the other, the buckets do not broadcast or are on another device, or the count is not positive.
    """
    if source is None and count is None:
        return None
    if source is None or count is None:
        given = "bucket_count" if source is None else "relative_buckets"
        raise ValueError(f"{given} is given alone: the gradient of the table needs relative_buckets and bucket_count")
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"bucket_count must be an int, got {count!r} (type={type(count).__name__})")
    if count < 1:
        raise ValueError(f"bucket_count must be positive, got {count!r}")
    sizes = (problem.q.shape[2], problem.k.shape[1])
    pairs = make_pairs(
        "relative_buckets", source, problem.heads, sizes, problem.q.device, kind="integer", optional=False
    )
    return None if pairs is None else Buckets(pairs, count)

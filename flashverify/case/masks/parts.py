"""The parts of a mask that are more than a number: packed sequences, block-sparse patterns, bitmasks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from flashverify.errors import UsageError

__all__ = ["Bitmap", "Blocks", "Packed"]


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed sequences: `cu_q` and `cu_k` are cumulative lengths, one longer than the number of sequences.

    Sequence s has rows `cu_q[s]` to `cu_q[s + 1] - 1` and keys `cu_k[s]` to `cu_k[s + 1] - 1`; what lies behind the last one is
    no part of the problem.
    """

    cu_q: tuple[int, ...]
    cu_k: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, cu in (("cu_q", self.cu_q), ("cu_k", self.cu_k)):
            if not cu or cu[0] != 0 or any(b < a for a, b in pairwise(cu)):
                raise UsageError(f"packed {name}={cu} is not accepted: cumulative lengths start at 0 and never fall")
        if len(self.cu_q) != len(self.cu_k):
            raise UsageError(f"packed cu_q={self.cu_q} and cu_k={self.cu_k} must have the same length")

    def lengths(self) -> tuple[tuple[int, int], ...]:
        """(rows, keys) of each sequence."""
        rows, keys = pairwise(self.cu_q), pairwise(self.cu_k)
        return tuple((b - a, d - c) for (a, b), (c, d) in zip(rows, keys, strict=True))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block-sparse pattern: one bool per block of `rows` x `keys` positions of the buffers, counted from their start.

    Args:
        rows: of a block.
        keys: of a block.
        live: in 256, the share of the live blocks, drawn by `seed`.
        seed: of the draw.
        butterfly: block (r, c) is live as well where the numbers r and c differ in at most one bit.
        each: a pattern of its own per batch and query head; otherwise one for all.
    """

    rows: int
    keys: int
    live: int
    seed: int
    butterfly: bool = False
    each: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1 or self.keys < 1 or not 0 <= self.live <= 256 or not 0 <= self.seed < 2**64:
            raise UsageError(f"{self} is not accepted: rows, keys >= 1, 0 <= live <= 256, 0 <= seed < 2**64")


@dataclass(frozen=True, slots=True)
class Bitmap:
    """Any bitmask: one bool per (row, key) of the buffers.

    Args:
        live: in 256, the share of the visible pairs, drawn by `seed`.
        seed: of the draw.
        each: a pattern of its own per batch and query head; otherwise one for all.
    """

    live: int
    seed: int
    each: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.live <= 256 or not 0 <= self.seed < 2**64:
            raise UsageError(f"{self} is not accepted: 0 <= live <= 256, 0 <= seed < 2**64")

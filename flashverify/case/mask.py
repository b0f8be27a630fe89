"""The mask of a case: which key each query row sees. This module is the specification that every subject is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["Bitmap", "Blocks", "Causal", "Mask", "Packed", "Visible", "visible"]

Causal = Literal["top-left", "bottom-right"]
Visible = Callable[[slice, slice], "torch.Tensor"]
"""Maps (rows, keys) to a bool tensor `[B, 1 or Hq, rows, keys]`: true where the row sees the key."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed sequences: `cu_q` and `cu_k` are cumulative lengths, one longer than the number of sequences."""

    cu_q: tuple[int, ...]
    cu_k: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, cu in (("cu_q", self.cu_q), ("cu_k", self.cu_k)):
            if not cu or cu[0] != 0 or any(b < a for a, b in pairwise(cu)):
                raise UsageError(f"packed {name}={cu} is not accepted: cumulative lengths start at 0 and never fall")
        if len(self.cu_q) != len(self.cu_k):
            raise UsageError(f"packed cu_q={self.cu_q} and cu_k={self.cu_k} must have the same length")


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block-sparse pattern: one bool per block of `rows` x `keys`, drawn with `live` in 256 from `seed`."""

    rows: int
    keys: int
    live: int
    seed: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.keys < 1 or not 0 <= self.live <= 256 or self.seed < 0:
            raise UsageError(f"{self} is not accepted: rows, keys >= 1, 0 <= live <= 256, seed >= 0")


@dataclass(frozen=True, slots=True)
class Bitmap:
    """Any bitmask: one bool per (row, key), drawn with `live` in 256 from `seed`."""

    live: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.live <= 256 or self.seed < 0:
            raise UsageError(f"{self} is not accepted: 0 <= live <= 256, seed >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """The AND of its parts; a part that is None masks nothing.

    Args:
        causal: row i sees key j only if j <= i (`top-left`), or j <= i + len_k - len_q (`bottom-right`), where the
            lengths are the sequence's declared ones.
        window: (left, right): row i, at its causal position p, sees keys p - left <= j <= p + right; None is unbounded.
        key_lengths: per sequence; keys from there on are padding.
        query_lengths: per sequence; rows from there on are padding: O = 0, LSE = -inf, no gradient.
        packed: several sequences in one row of tokens; a row sees its own sequence only.
        tree: parents of the query nodes (-1 for a root, otherwise a smaller index). The last `seq_q` keys are the nodes
            themselves, the keys before them a prefix that every node sees; a node sees itself and its ancestors.
        blocks: a bool per block.
        bitmap: a bool per pair.
    """

    causal: Causal | None = None
    window: tuple[int | None, int | None] | None = None
    key_lengths: tuple[int, ...] | None = None
    query_lengths: tuple[int, ...] | None = None
    packed: Packed | None = None
    tree: tuple[int, ...] | None = None
    blocks: Blocks | None = None
    bitmap: Bitmap | None = None

    def __post_init__(self) -> None:
        if self.causal not in (None, "top-left", "bottom-right"):
            raise UsageError(f"causal={self.causal!r} is not accepted: None, 'top-left' or 'bottom-right'")
        for side in self.window or ():
            if side is not None and side < 0:
                raise UsageError(f"window={self.window} is not accepted: sides are None or >= 0")
        for name in ("key_lengths", "query_lengths"):
            if any(length < 0 for length in getattr(self, name) or ()):
                raise UsageError(f"{name}={getattr(self, name)} is not accepted: lengths are >= 0")
        for node, parent in enumerate(self.tree or ()):
            if not -1 <= parent < node:
                raise UsageError(
                    f"tree={self.tree} is not accepted: the parent of node {node} is -1 or a smaller index"
                )
        if self.tree is not None and (self.causal or self.window or self.packed):
            raise UsageError("a tree mask cannot be combined with causal, window or packed")

    def parts(self) -> frozenset[str]:
        """Names of the parts that are present, as a subject declares them in `Supports.masks`."""
        return frozenset(f.name for f in fields(self) if getattr(self, f.name) is not None)


def visible(case: Case, device: torch.device | str = "cpu") -> Visible | None:
    """The mask of `case` as a function of (rows, keys), or None where every row sees every key.

    The parts `packed`, `blocks` and `bitmap` have no meaning here yet and are refused.

    Raises:
        UsageError: the mask has a part that is not evaluated.
    """
    import torch

    mask = case.mask
    unknown = mask.parts() & {"packed", "blocks", "bitmap"}
    if unknown:
        raise UsageError(f"mask parts {sorted(unknown)} cannot be evaluated yet")
    if not mask.parts():
        return None

    def lengths(declared: tuple[int, ...] | None, full: int) -> torch.Tensor:  # [B, 1, 1, 1]
        values = declared if declared is not None else (full,) * case.batch
        return torch.tensor(values, device=device, dtype=torch.int64).view(-1, 1, 1, 1)

    len_q, len_k = lengths(mask.query_lengths, case.seq_q), lengths(mask.key_lengths, case.seq_k)
    ancestors = _ancestors(mask.tree).to(device) if mask.tree is not None else None
    shift = len_k - len_q if mask.causal == "bottom-right" else torch.zeros_like(len_k)

    def see(rows: slice, keys: slice) -> torch.Tensor:
        i = torch.arange(case.seq_q, device=device)[rows].view(1, 1, -1, 1)
        j = torch.arange(case.seq_k, device=device)[keys].view(1, 1, 1, -1)
        seen = (i < len_q) & (j < len_k)
        if mask.causal is not None:
            seen = seen & (j <= i + shift)
        if mask.window is not None:
            left, right = mask.window
            if left is not None:
                seen = seen & (j >= i + shift - left)
            if right is not None:
                seen = seen & (j <= i + shift + right)
        if ancestors is not None:
            prefix = case.seq_k - case.seq_q
            node = (j - prefix).clamp(min=0)
            seen = seen & ((j < prefix) | ancestors[i, node])
        return seen

    return see


def _ancestors(parents: tuple[int, ...]) -> torch.Tensor:
    """Bool `[n, n]`: entry (i, j) is true where j is i or an ancestor of i."""
    import torch

    table = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            table[node] |= table[parent]
    return table

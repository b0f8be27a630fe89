"""The mask of a case: which key each query row sees. This module is the specification that every subject is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from flashverify.case.masks.parts import Bitmap, Blocks, Packed
from flashverify.errors import UsageError

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["Bitmap", "Blocks", "Causal", "Mask", "Packed", "Visible", "visible"]

Causal = Literal["top-left", "bottom-right"]
Visible = Callable[[slice, slice], "torch.Tensor"]
"""Maps (rows, keys) to a bool tensor `[B, 1 or Hq, rows, keys]`: true where the row sees the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """The AND of its parts; a part that is None masks nothing.

    Args:
        causal: row i sees key j only if j <= i (`top-left`), or j <= i + len_k - len_q (`bottom-right`), where the
            lengths are the sequence's declared ones.
        window: (left, right): row i, at its causal position p, sees keys p - left <= j <= p + right; None is unbounded.
        key_lengths: per sequence; keys from there on are padding.
        query_lengths: per sequence; rows from there on are padding: O = 0, LSE = -inf, no gradient.
        packed: several sequences in one row of tokens; a row sees its own sequence only, and causal and window are aligned
            within it. It takes the place of key and query lengths.
        tree: parents of the query nodes (-1 for a root, otherwise a smaller index). The last `seq_q` keys are the nodes
            themselves, the keys before them a prefix that every node sees; a node sees itself and its ancestors. Of packed
            sequences each has a tree of its own, numbered within it, and the last of its keys are its nodes.
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
            if self.packed is not None and getattr(self, name) is not None:
                raise UsageError(
                    f"{name}={getattr(self, name)} is not accepted: packed sequences have their own lengths"
                )
        if self.tree is not None and (self.causal or self.window):
            raise UsageError("a tree mask cannot be combined with causal or window")
        self._check_tree()

    def _check_tree(self) -> None:
        starts = self.packed.cu_q if self.packed is not None else (0, len(self.tree or ()))
        for first, last in pairwise(starts):
            for node, parent in enumerate((self.tree or ())[first:last]):
                if not -1 <= parent < node:
                    raise UsageError(
                        f"tree={self.tree} is not accepted: the parent of node {node} is -1 or a smaller index"
                    )
        if self.tree is not None and self.packed is not None:
            for rows, keys in self.packed.lengths():
                if keys < rows:
                    raise UsageError(f"packed cu_k={self.packed.cu_k} is not accepted: a key per row under a tree mask")

    def parts(self) -> frozenset[str]:
        """Names of the parts that are present, as a subject declares them in `Supports.masks`."""
        return frozenset(f.name for f in fields(self) if getattr(self, f.name) is not None)


def visible(case: Case, device: torch.device | str = "cpu") -> Visible | None:
    """The mask of `case` as a function of (rows, keys), or None where every row sees every key."""
    import torch

    from flashverify.case.masks.patterns import bitmap_tensor, blocks_tensor
    from flashverify.case.masks.positions import positions

    mask = case.mask
    if not mask.parts():
        return None
    at = positions(case, device)
    ancestors = None if mask.tree is None else _ancestors(mask.tree, mask.packed, case.seq_q).to(device)
    bitmap, live = bitmap_tensor(case, device), blocks_tensor(case, device)

    def see(rows: slice, keys: slice) -> torch.Tensor:
        i, j = at.row[:, None, rows, None], at.key[:, None, None, keys]
        seen = at.row_sequence[:, None, rows, None] == at.key_sequence[:, None, None, keys]
        seen = seen & (i < at.rows[:, None, rows, None]) & (j < at.key_limit[:, None, None, keys])
        position = i + at.shift[:, None, rows, None]
        left, right = mask.window or (None, None)
        if mask.causal is not None:
            seen = seen & (j <= position)
        if left is not None:
            seen = seen & (j >= position - left)
        if right is not None:
            seen = seen & (j <= position + right)
        if ancestors is not None:
            nodes = case.seq_q if mask.packed is None else at.rows[:, None, rows, None]
            prefix = (case.seq_k if mask.packed is None else at.keys[:, None, rows, None]) - nodes
            node = (j - prefix).clamp(0, ancestors.shape[1] - 1)
            number = torch.arange(case.seq_q, device=device)[rows].view(1, 1, -1, 1)
            seen = seen & ((j < prefix) | ancestors[number, node])
        if bitmap is not None:
            seen = seen & bitmap[:, :, rows, keys]
        if live is not None and mask.blocks is not None:
            r = torch.arange(case.seq_q, device=device)[rows] // mask.blocks.rows
            c = torch.arange(case.seq_k, device=device)[keys] // mask.blocks.keys
            seen = seen & live[:, :, r[:, None], c]
        return seen

    return see


def _ancestors(parents: tuple[int, ...], packed: Packed | None, rows: int) -> torch.Tensor:
    """Bool `[rows, nodes]`: entry (i, n) is true where n is row i's node or an ancestor of it, numbered within its tree."""
    import torch

    starts = packed.cu_q if packed is not None else (0, len(parents))
    widest = max((b - a for a, b in pairwise(starts)), default=0)
    table = torch.zeros(rows, max(widest, 1), dtype=torch.bool)
    for first, last in pairwise(starts):
        for node in range(last - first):
            parent = parents[first + node]
            if parent >= 0:
                table[first + node] |= table[first + parent]
            table[first + node, node] = True
    return table

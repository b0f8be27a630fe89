"""Whether a mask leaves any pair visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.case import Case

if TYPE_CHECKING:
    from flashverify.case.masks.mask import Mask

__all__ = ["sees_something"]

_STEP = 2**20
"""Pairs of all heads and sequences that are looked at together."""
_PIECES = 64
"""Pieces that are looked at, evenly spread where there are more: a mask that shows in none of them is drawn again."""


def sees_something(mask: Mask, *, batch: int, heads: int, seq_q: int, seq_k: int, first: int = 0) -> bool:
    """Whether some row sees some key.

    Args:
        mask: of a case of these sizes.
        batch: sequences; 1 where they are packed.
        heads: query heads.
        seq_q: rows of the buffers.
        seq_k: keys of the buffers.
        first: the first of the keys that count.
    """
    from flashverify.case.masks.predicate import visible

    if 0 in (batch, seq_q, seq_k):
        return False
    see = visible(Case(batch=batch, heads_q=heads, seq_q=seq_q, seq_k=seq_k, mask=mask))
    if see is None:
        return first < seq_k
    rows = max(_STEP // (batch * heads * seq_k), 1)
    starts = range(0, seq_q, rows)
    if len(starts) > _PIECES:
        starts = starts[:: -(-len(starts) // _PIECES)]
    return any(bool(see(slice(row, min(row + rows, seq_q)), slice(first, seq_k)).any()) for row in starts)

"""Whether a mask leaves any pair visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.masks.mask import Mask

__all__ = ["sees_something"]

_STEP = 2**20
"""Pairs of all heads and sequences that are looked at together."""
_PIECES = 64
"""Pieces that are looked at, evenly spread where there are more: a mask that shows in none of them is drawn again."""
_GLANCE = 8
"""Rows that are looked at alone before the pieces that they belong to: almost every mask shows in them, at a hundredth of the cost."""


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
    pieces = [slice(row, min(row + rows, seq_q)) for row in starts]
    keys = slice(first, seq_k)
    return any(bool(see(some, keys).any()) for some in (*_glances(pieces), *pieces))


def _glances(pieces: list[slice]) -> Iterator[slice]:
    """A few rows of the last piece, the first and the one between, where these have many more."""
    last, middle = pieces[-1], pieces[len(pieces) // 2]
    if pieces[0].stop > 2 * _GLANCE:
        yield slice(max(last.stop - _GLANCE, last.start), last.stop)
        yield slice(0, _GLANCE)
        at = (middle.start + middle.stop) // 2
        yield slice(at, min(at + _GLANCE, middle.stop))

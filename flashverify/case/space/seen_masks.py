"""Masks that are drawn until one leaves a pair visible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.space.draws import draw_mask
from flashverify.case.space.sampling import sampled_from
from flashverify.case.space.seen import sees_something
from flashverify.case.space.stretched import first_far_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.masks.mask import Mask
    from flashverify.case.masks.packed import Packed
    from flashverify.case.space.compile_keys import CompileKey
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_seen_mask"]

_BLANK = (True, *(False,) * 24)
"""Whether a mask may hide every pair; true is simpler, so that every case shrinks freely."""
_MASKS = 4
"""Masks that are drawn until a row sees a key that counts."""


def draw_seen_mask(
    draw: Draw,
    supports: Supports,
    parts: frozenset[str],
    kind: CompileKey,
    sizes: tuple[int, int, int, int, int],
    packed: Packed | None,
) -> Mask:
    """A mask with these parts; sizes are batch, sequences, heads, rows and keys.

    But for a few cases some row sees some key, and of long keys and many blocks one that shorter cases do not have.
    """
    batch, sequences, heads, seq_q, seq_k = sizes
    blank = draw(sampled_from(_BLANK)) or not parts or 0 in (batch, sequences, seq_q, seq_k)
    first = 0 if packed is not None else first_far_key(parts, kind.block[1], seq_k)
    for _ in range(_MASKS):
        mask = draw_mask(draw, supports, parts, (sequences, seq_q, seq_k), kind.block, packed)
        if blank or sees_something(mask, batch=batch, heads=heads, seq_q=seq_q, seq_k=seq_k, first=first):
            break
    return mask

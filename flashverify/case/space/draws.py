"""Draws of the lengths and the mask of a case."""

from __future__ import annotations

from bisect import bisect_right
from math import isqrt
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.masks.mask import Bitmap, Blocks, Mask, Packed
from flashverify.case.space.optional_parts import one_in
from flashverify.case.space.trees import trees
from flashverify.case.values.dropout_words import deciding_word

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Causal
    from flashverify.case.space.profiles import Profile
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_lengths", "draw_mask", "draw_threshold"]

_EDGES = tuple(
    sorted({0, 1, 2, 3, 5, 11, 13, 37, 53, 97, *(t + d for t in (8, 16, 24, 32, 48, 64, 80, 96) for d in (-1, 0, 1))})
    + [t + d for t in (128, 192, 256, 384, 512, 1024, 2048, 4096) for d in (-1, 0, 1)]
)
"""Lengths at which loops, tiles and splits end: tile sizes with their neighbours, primes, one past a power of two."""
_LIVE = (128, 256, 0, 16, 240)
"""Shares of live pairs or blocks, in 256."""


def _size(draw: Draw, low: int, high: int) -> int:
    """An integer from `low` to `high`, as often as not moved down to an edge."""
    value: int = draw(st.integers(low, max(low, high)))
    return max(low, _EDGES[bisect_right(_EDGES, value) - 1]) if draw(st.booleans()) else value


def draw_lengths(
    draw: Draw, supports: Supports, profile: Profile, parts: frozenset[str], pairs: int, empty: str
) -> tuple[int, int]:
    """seq_q and seq_k: independent, equal, or one short and the other long; about `pairs` of them at most.

    Of a subject with few query rows the keys are the long ones.
    """
    few = supports.max_seq_q
    limit = profile.max_long if few else draw(st.sampled_from((profile.max_seq,) * 3 + (profile.max_long,)))
    equal, swapped = draw(one_in(4)), draw(one_in(4))
    pairs = min(pairs, profile.max_pairs)
    seq_q = _size(draw, 1, min(profile.max_seq, pairs, few or pairs))
    most = min(limit, pairs // seq_q)
    seq_k = _size(draw, min(profile.least_long, most) if limit == profile.max_long else 1, most)
    square = min(seq_k, isqrt(pairs), few or seq_k)
    if "tree" in parts:
        seq_q = 0 if empty else min(seq_q, isqrt(pairs))
        return seq_q, (0 if empty == "seq_k" else max(seq_q, seq_k))
    if "causal" in parts and not supports.rectangular_causal:
        return (0, 0) if empty in ("seq_q", "seq_k") else (square, square)
    if equal:
        seq_q = seq_k = square
    elif swapped and seq_k <= (few or seq_k):
        seq_q, seq_k = seq_k, seq_q
    return (0 if empty == "seq_q" else seq_q), (0 if empty == "seq_k" else seq_k)


def draw_mask(
    draw: Draw,
    supports: Supports,
    parts: frozenset[str],
    shape: tuple[int, int, int],
    block: tuple[int, int] = (16, 16),
) -> Mask:
    """The mask with these parts; lengths are most often full or inside, sometimes 0 or 1.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        parts: of the mask.
        shape: (batch, seq_q, seq_k); the batch is the number of sequences where they are packed.
        block: rows and keys of a block.
    """
    batch, seq_q, seq_k = shape
    causal: list[Causal] = [a for a in ("top-left", "bottom-right") if a in supports.causal]

    def declared(name: str, full: int) -> tuple[int, ...] | None:
        if name not in parts:
            return None
        kinds = (
            lambda: full,
            lambda: _size(draw, 0, full),
            lambda: _size(draw, 0, full),
            lambda: min(1, full),
            lambda: 0,
        )
        return tuple(draw(st.sampled_from(kinds))() for _ in range(batch))

    alignment = draw(st.sampled_from(causal)) if "causal" in parts else None
    window = (_side(draw, seq_q, seq_k), _side(draw, seq_q, seq_k)) if "window" in parts else None
    key_lengths, query_lengths = declared("key_lengths", seq_k), declared("query_lengths", seq_q)
    packed = _packed(draw, supports, parts, shape) if "packed" in parts else None
    nodes = (seq_q,) if packed is None else tuple(rows for rows, _ in packed.lengths())
    return Mask(
        causal=alignment,
        window=window,
        key_lengths=key_lengths,
        query_lengths=query_lengths,
        packed=packed,
        tree=tuple(parent for n in nodes for parent in draw(trees(n))) if "tree" in parts else None,
        blocks=_blocks(draw, block) if "blocks" in parts else None,
        bitmap=_bitmap(draw) if "bitmap" in parts else None,
    )


def draw_threshold(draw: Draw, case: Case) -> float:
    """A probability at which one pair of the case is just kept or just dropped; the case's own where that would be near 0 or 1."""
    mask, packed = case.mask, case.mask.packed
    shapes = packed.lengths() if packed is not None else ((case.seq_q, case.seq_k),) * case.batch
    rows, keys = mask.query_lengths or [n for n, _ in shapes], mask.key_lengths or [n for _, n in shapes]
    inside = [b for b in range(len(shapes)) if rows[b] and keys[b]]
    if not inside:
        return case.dropout
    b = draw(st.sampled_from(inside))
    limits = (case.heads_q, rows[b], keys[b])
    head, row, key = (draw(st.integers(0, limit - 1)) for limit in limits)
    p: float = (deciding_word(case, b, head, row, key) + draw(st.sampled_from((0, 1)))) / 2**32
    return p if 0.02 < p < 0.98 else case.dropout


def _side(draw: Draw, seq_q: int, seq_k: int) -> int | None:
    """One side of a window: open, the row's own position, an edge of a tile, or as wide as everything."""
    full = max(seq_q, seq_k)
    kinds = ("open", "size", "size", "size", "open", 0, 1, full)
    kind: int | str = draw(st.sampled_from(kinds))
    return kind if isinstance(kind, int) else _size(draw, 0, full) if kind == "size" else None


def _packed(draw: Draw, supports: Supports, parts: frozenset[str], shape: tuple[int, int, int]) -> Packed:
    """Sequences in buffers of seq_q rows and seq_k keys: some of them empty, sometimes with room behind the last."""
    count, seq_q, seq_k = shape
    cu_q = _cumulative(draw, count, seq_q)
    if "causal" in parts and not supports.rectangular_causal:
        return Packed(cu_q, cu_q)
    if "tree" in parts:
        prefixes = _cumulative(draw, count, seq_k - seq_q)
        return Packed(cu_q, tuple(a + b for a, b in zip(cu_q, prefixes, strict=True)))
    same = seq_q == seq_k and draw(st.booleans())
    return Packed(cu_q, cu_q if same else _cumulative(draw, count, seq_k))


def _cumulative(draw: Draw, count: int, total: int) -> tuple[int, ...]:
    """Cumulative lengths of `count` sequences in `total` positions: even shares, anything, 1 or 0."""
    rest = total - (_size(draw, 1, total // 2) if total > 1 and draw(st.booleans()) else 0)
    cu = [0]
    for left in range(count, 0, -1):
        kinds = (rest // left, rest // left, "size", "size", 1, 0) if left > 1 else (rest, rest, rest, 0)
        kind: int | str = draw(st.sampled_from(kinds))
        length = min(rest, kind) if isinstance(kind, int) else _size(draw, 0, rest)
        cu.append(cu[-1] + length)
        rest -= length
    return tuple(cu)


def _blocks(draw: Draw, block: tuple[int, int]) -> Blocks:
    rows, keys = block
    butterfly, each = draw(one_in(4)), draw(one_in(3))
    live = 0 if butterfly else draw(st.sampled_from(_LIVE))
    return Blocks(rows, keys, live, draw(st.integers(0, 255)), butterfly=butterfly, each=each)


def _bitmap(draw: Draw) -> Bitmap:
    return Bitmap(draw(st.sampled_from(_LIVE)), draw(st.integers(0, 255)), each=draw(one_in(3)))

"""Draws of the lengths and the mask of a case."""

from __future__ import annotations

from bisect import bisect_right
from math import isqrt
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.mask import Mask
from flashverify.case.trees import trees

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.mask import Causal
    from flashverify.case.profiles import Profile
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["all_parts", "draw_lengths", "draw_mask", "draw_parts", "one_in"]

_EDGES = tuple(
    sorted({0, 1, 2, 3, 5, 11, 13, 37, 53, 97, *(t + d for t in (8, 16, 24, 32, 48, 64, 80, 96) for d in (-1, 0, 1))})
    + [t + d for t in (128, 192, 256, 384, 512, 1024, 2048) for d in (-1, 0, 1)]
)
"""Lengths at which loops, tiles and splits end: tile sizes with their neighbours, primes, one past a power of two."""


def one_in(n: int) -> SearchStrategy[bool]:
    """True about once in `n` draws; shrinks to false."""
    return st.sampled_from((False,) * (n - 1) + (True,))


def _size(draw: Draw, low: int, high: int) -> int:
    """An integer from `low` to `high`, as often as not moved down to an edge."""
    value: int = draw(st.integers(low, max(low, high)))
    return max(low, _EDGES[bisect_right(_EDGES, value) - 1]) if draw(st.booleans()) else value


def all_parts(supports: Supports) -> list[frozenset[str]]:
    """Every set of mask parts that the subject has, plain first."""
    main = [(), *((p,) for p in ("causal", "tree", "window") if p in supports.masks)]
    lengths = [p for p in ("key_lengths", "query_lengths") if p in supports.masks]
    if not supports.combine_masks:
        return [frozenset(parts) for parts in (*main, *((p,) for p in lengths))]
    more = [(), *((p,) for p in lengths), *([tuple(lengths)] if len(lengths) == 2 else [])]
    return [frozenset(a + b) for b in more for a in main]


def draw_parts(draw: Draw, supports: Supports) -> frozenset[str]:
    """Which parts the mask has: none, one, or several that may stand together."""
    main = [p for p in ("causal", "tree", "window") if p in supports.masks]
    lengths = [p for p in ("key_lengths", "query_lengths") if p in supports.masks]
    if not supports.combine_masks:
        return frozenset(draw(st.sampled_from([(), *((p,) for p in main + lengths)])))
    parts = set(draw(st.sampled_from([(), *((p,) for p in main)])))
    parts |= {part for part in lengths if draw(st.booleans())}
    if "window" in supports.masks and "causal" in parts and draw(st.booleans()):
        parts.add("window")
    return frozenset(parts)


def draw_lengths(
    draw: Draw, supports: Supports, profile: Profile, parts: frozenset[str], pairs: int, empty: str
) -> tuple[int, int]:
    """seq_q and seq_k: independent, equal, or one short and the other long; about `pairs` of them at most."""
    limit = draw(st.sampled_from((profile.max_seq,) * 3 + (profile.max_long,)))
    equal, swapped = draw(one_in(4)), draw(one_in(4))
    pairs = min(pairs, profile.max_seq**2)
    seq_q = _size(draw, 1, min(profile.max_seq, pairs))
    seq_k = _size(draw, 1, min(limit, pairs // seq_q))
    square = min(seq_k, isqrt(pairs))
    if "tree" in parts:
        seq_q = 0 if empty else min(seq_q, isqrt(pairs))
        return seq_q, (0 if empty == "seq_k" else max(seq_q, seq_k))
    if "causal" in parts and not supports.rectangular_causal:
        return (0, 0) if empty in ("seq_q", "seq_k") else (square, square)
    if equal:
        seq_q = seq_k = square
    elif swapped:
        seq_q, seq_k = seq_k, seq_q
    return (0 if empty == "seq_q" else seq_q), (0 if empty == "seq_k" else seq_k)


def draw_mask(draw: Draw, supports: Supports, parts: frozenset[str], batch: int, seq_q: int, seq_k: int) -> Mask:
    """The mask with these parts; lengths are most often full or inside, sometimes 0 or 1."""
    causal: list[Causal] = [a for a in ("top-left", "bottom-right") if a in supports.causal]
    sides = st.one_of(st.none(), st.integers(0, 8), st.integers(0, 80))

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

    return Mask(
        causal=draw(st.sampled_from(causal)) if "causal" in parts else None,
        window=draw(st.tuples(sides, sides)) if "window" in parts else None,
        key_lengths=declared("key_lengths", seq_k),
        query_lengths=declared("query_lengths", seq_q),
        tree=draw(trees(seq_q)) if "tree" in parts else None,
    )

"""Draws of the rows and keys of a subject that takes any: small numbers at will, several tiles, one query or one key."""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

from flashverify.case.space.draws import Choices
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.space.profiles import Profile
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_lengths", "narrowed", "one_query"]

_SEVERAL = (False, *(True,) * 15)
"""Whether lengths are asked to pass the tile in both directions, where the work of the profile allows that."""
_MOST_ROW_TILES, _MOST_KEY_TILES = 3, 4
"""Tiles of cases with several of them, beyond which a case costs more than it shows."""
_FEW_ROWS = 8
"""Rows behind the first tile of cases with many tiles of keys."""
_NARROW = ("",) * 34 + ("one query", "one key")
"""Which side of a case has length 1; a few in a hundred, so that every part of the mask meets both."""
_WINDOWED = 3
"""One case in so many of a subject with few query rows has a single query under a window: what a step of decoding is."""
_PREFIXED = (False, True, True, True)
"""Whether a tree has keys before its nodes, as a cache has."""


def draw_lengths(
    draw: Draw,
    supports: Supports,
    profile: Profile,
    parts: frozenset[str],
    pairs: int,
    empty: str,
    tile: tuple[int, int],
) -> tuple[int, int]:
    """seq_q and seq_k, about `pairs` of them at most: several tiles of both, or independent, equal, or one short and the other long.

    Of a subject with few query rows the keys are the long ones. The bounds of the same two draws change with the kind, so that a case of
    several tiles shrinks to a smaller one.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        profile: how long sequences may be.
        parts: of the mask.
        pairs: most rows times keys by the work of the profile.
        empty: `seq_q` or `seq_k` where it is to be 0.
        tile: rows and keys of a tile.
    """
    pairs, few = min(pairs, profile.max_pairs), supports.max_seq_q
    limit = profile.max_long if few else draw(sampled_from((profile.max_seq,) * 3 + (profile.max_long,)))
    several, equal, swapped = draw(sampled_from(_SEVERAL)), draw(one_in(4)), draw(one_in(4))
    forced = "causal" in parts and not supports.rectangular_causal
    together = forced or (equal and not (several and (max(tile) + 1) ** 2 > pairs >= (tile[0] + 1) * (tile[1] + 1)))
    least_q, least_k = (max(tile) + 1,) * 2 if together else (tile[0] + 1, tile[1] + 1)
    long = limit == profile.max_long
    most_q, most_k = profile.max_seq, limit
    several = several and least_q * max(least_k, profile.least_long if long else 1) <= pairs and not few
    if several and long:
        most_q, least_k = tile[0] + _FEW_ROWS, max(least_k, profile.least_long if not together else 1)
    elif several:
        most_q, most_k = min(most_q, _MOST_ROW_TILES * tile[0]), min(limit, _MOST_KEY_TILES * tile[1])
    else:
        least_q, least_k = 1, profile.least_long if long else 1
    seq_q = Choices(draw).size(least_q, min(most_q, pairs // (least_k if several else 1), few or pairs))
    most_k = min(most_k, pairs // seq_q)
    if several and long:
        least_k = max(least_k, most_k // 2)
    seq_k = Choices(draw).size(least_k if several else min(least_k, most_k), most_k)
    if together:
        seq_q = seq_k = min(seq_k, isqrt(pairs), few or seq_k)
    elif swapped and seq_k <= (few or seq_k) and "tree" not in parts and not several:
        seq_q, seq_k = seq_k, seq_q
    if "tree" in parts:
        seq_q = min(seq_q, isqrt(pairs))
        if draw(sampled_from(_PREFIXED)) and seq_k <= seq_q:
            seq_k = seq_q + min(max(seq_k, 1), max(pairs // seq_q - seq_q, 0))
        return (0 if empty else seq_q), (0 if empty == "seq_k" else max(seq_q, seq_k))
    if forced and empty in ("seq_q", "seq_k"):
        return 0, 0
    return (0 if empty == "seq_q" else seq_q), (0 if empty == "seq_k" else seq_k)


def narrowed(draw: Draw, supports: Supports, parts: frozenset[str], lengths: tuple[int, int]) -> tuple[int, int]:
    """The lengths, in a few cases with a single query or a single key, as far as the subject has that."""
    kind = "one query" if one_query(draw, supports, parts) else draw(sampled_from(_NARROW))
    if not kind or 0 in lengths:
        return lengths
    seq_q, seq_k = (1, lengths[1]) if kind == "one query" else (lengths[0], 1)
    if (
        supports.square
        or ("causal" in parts and not supports.rectangular_causal)
        or ("tree" in parts and seq_k < seq_q)
    ):
        seq_q = seq_k = 1
    rows, keys = supports.rows(), supports.keys()
    return (seq_q, seq_k) if seq_q in rows and seq_k in keys else lengths


def one_query(draw: Draw, supports: Supports, parts: frozenset[str]) -> bool:
    """Whether a case, or each of its packed sequences, is to have a single query, in a part of those with a window of a subject with few query rows."""
    return supports.max_seq_q is not None and "window" in parts and bool(draw(one_in(_WINDOWED)))

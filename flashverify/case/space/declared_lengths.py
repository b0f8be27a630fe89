"""Draws of the rows and keys of a subject that declares which it takes: every draw is inside the declaration."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import isqrt
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.packed import Packed
from flashverify.case.space.draws import Choices
from flashverify.case.space.lengths import one_query
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.sizes import Lengths
    from flashverify.case.space.profiles import Profile
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_declared_lengths", "draw_packed", "fewest_pairs"]

_UNITS = 3
"""Lengths of a declaration that are drawn even where all of them are beyond the profile, so that there is more than one tile."""
_LISTED = 16
"""Lengths up to which each is as likely as any other."""
_OVER = 16
"""Times the work of the profile up to which both rows and keys may be twice the least; above it one of them."""


def fewest_pairs(supports: Supports) -> int:
    """Rows times keys of the smallest sequence of the subject that has some."""
    return (supports.rows().first() or 1) * (supports.keys().first() or 1)


def draw_declared_lengths(
    draw: Draw, supports: Supports, profile: Profile, parts: frozenset[str], pairs: int, empty: str = ""
) -> tuple[int, int]:
    """seq_q and seq_k: equal, independent, or one short and the other long.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        profile: how long sequences may be; the smallest three declared lengths may be drawn beyond it.
        parts: of the mask.
        pairs: most rows times keys by the work of the profile.
        empty: `seq_q` or `seq_k` where it is to be 0.
    """
    rows, keys = supports.rows(), supports.keys()
    least = fewest_pairs(supports)
    within = max(min(pairs, profile.max_pairs), least * (4 if least <= _OVER * pairs else 2))
    together = supports.square or ("causal" in parts and not supports.rectangular_causal)
    if together and empty:
        return 0, 0
    if together or draw(one_in(3)):
        both = rows & keys
        found = [n for n in both.up_to(isqrt(within), number=_UNITS) if n * n <= within]
        if found or together:
            length = _pick(draw, found or [both.first() or 1])
            return (0 if empty == "seq_q" else length), (0 if empty == "seq_k" else length)
    swapped = draw(one_in(4))
    limit_q, limit_k = (profile.max_long, profile.max_seq) if swapped else (profile.max_seq, profile.max_long)
    seq_q = _pick(draw, _fitting(rows, limit_q, 1, within // (keys.first() or 1)))
    least_k = 1
    if "tree" in parts:
        if keys.first(seq_q) is None:
            seq_q = rows.first() or 1
        least_k = seq_q
    seq_k = _pick(draw, _fitting(keys, limit_k, least_k, within // seq_q))
    if "tree" in parts and empty:
        return 0, (0 if empty == "seq_k" else seq_k)
    return (0 if empty == "seq_q" else seq_q), (0 if empty == "seq_k" else seq_k)


def draw_packed(
    draw: Draw, supports: Supports, profile: Profile, parts: frozenset[str], pairs: int, sequences: int
) -> tuple[Packed, int, int]:
    """Packed sequences, each of a length of its own, with seq_q and seq_k of their buffers: sometimes with room behind the last.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        profile: how long sequences may be.
        parts: of the mask.
        pairs: most rows times keys of the buffers by the work of the profile.
        sequences: how many.
    """
    listed = supports.seq_q is not None or supports.seq_k is not None
    hollow = supports.empty or not listed
    share = max(pairs // max(sequences, 1) ** 2, 1)
    lengths, single = [], one_query(draw, supports, parts)
    for _ in range(sequences):
        pair = draw_declared_lengths(draw, supports, profile, parts, share)
        pair = _single(supports, parts, pair) if single else pair
        lengths.append(_hollow(draw, supports, parts, pair) if hollow and draw(one_in(6)) else pair)
    cu_q, cu_k = (tuple(accumulate((pair[axis] for pair in lengths), initial=0)) for axis in (0, 1))
    room_q, room_k = (supports.seq_multiple * draw(sampled_from((0, 0, 0, 1, 3))) for _ in range(2))
    seq_q = max(cu_q[-1] + room_q, 0 if supports.empty else supports.seq_multiple)
    seq_k = max(cu_k[-1] + room_k, 0 if supports.empty else supports.seq_multiple)
    if supports.square:
        seq_q = seq_k = max(seq_q, seq_k)
    return Packed(cu_q, cu_k), seq_q, seq_k


def _single(supports: Supports, parts: frozenset[str], pair: tuple[int, int]) -> tuple[int, int]:
    """One query over the same keys, as far as the subject has that."""
    together = supports.square or ("causal" in parts and not supports.rectangular_causal)
    return (1, pair[1]) if 1 in supports.rows() and not together else pair


def _hollow(draw: Draw, supports: Supports, parts: frozenset[str], pair: tuple[int, int]) -> tuple[int, int]:
    """Without rows, without keys, or without either, as far as the subject has that."""
    together = supports.square or ("causal" in parts and not supports.rectangular_causal)
    choices = [(0, 0)] if together else [(0, 0), (0, pair[1]), *([] if "tree" in parts else [(pair[0], 0)])]
    found: tuple[int, int] = draw(sampled_from(choices))
    return found


def _fitting(lengths: Lengths, limit: int, least: int, within: int) -> list[int]:
    """Lengths from `least` to the limit, and at most `within`; the smallest one where there is no other."""
    found = [n for n in lengths.up_to(min(limit, max(within, 1)), least, number=_UNITS) if n <= within]
    return found or [lengths.first(least) or 1]


def _pick(draw: Draw, lengths: list[int]) -> int:
    """One of the lengths; of many as often as not one at the edge of a tile."""
    if len(lengths) <= _LISTED:
        return int(draw(sampled_from(lengths)))
    size = Choices(draw).size(lengths[0], lengths[-1])
    return lengths[max(bisect_right(lengths, size) - 1, 0)]

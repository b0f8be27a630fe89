"""Draws of rows and keys from 1 to the longest of a profile, evenly by octave: decode-shaped, prefill-shaped, independent, packed."""

from __future__ import annotations

from itertools import accumulate
from math import isqrt
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.masks.packed import Packed
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.sizes import Lengths
    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_long_lengths", "draw_long_packed", "log_uniform"]

_SHAPES = ("independent", "decode", "prefill", "chunk")
"""Rows and keys apart; few rows over many keys; as many rows as keys; rows behind a prefix of keys."""
_DECODE_ROWS = 16
_TREE_NODES = 64
"""Nodes of a tree, which the text of a case lists one by one."""
_BLOCKS = 2**20
"""Blocks of a pattern, of one head."""
_EDGE = 64
"""Lengths are moved to one beside a multiple of it in one case of three."""


def log_uniform(draw: Draw, low: int, high: int) -> int:
    """An integer from `low` to `high`: its octave is drawn evenly, then its place in that."""
    first, last = (n - 1).bit_length() if (n := low) > 1 else 0, (high - 1).bit_length() if high > 1 else 0
    octave = draw(sampled_from(range(first, last + 1)))
    least, most = (1 << octave >> 1) + 1, 1 << octave
    return int(draw(st.integers(max(least if octave else 1, low), max(min(most, high), low))))


def draw_long_lengths(
    draw: Draw,
    supports: Supports,
    parts: frozenset[str],
    block: tuple[int, int],
    *,
    pairs: int,
    longest: int,
    empty: str,
) -> tuple[int, int]:
    """seq_q and seq_k of a case whose sequences are not packed.

    Args:
        draw: of hypothesis.
        supports: what the subject declares; a length that it does not take gives way to one that it takes.
        parts: of the mask.
        block: rows and keys of a block of a block-sparse pattern.
        pairs: most rows times keys.
        longest: query or key sequence.
        empty: `seq_q` or `seq_k` where it is to be 0.
    """
    if "blocks" in parts:
        pairs = min(pairs, _BLOCKS * block[0] * block[1])
    seq_q, seq_k = _pair(draw, supports, parts, pairs, longest)
    if empty and (_together(supports, parts) or ("tree" in parts and empty == "seq_k")):
        return 0, 0
    return (0 if empty == "seq_q" else seq_q), (0 if empty == "seq_k" else seq_k)


def draw_long_packed(
    draw: Draw, supports: Supports, parts: frozenset[str], *, pairs: int, longest: int, sequences: int
) -> tuple[Packed, int, int]:
    """Packed sequences of very uneven lengths, each drawn evenly by octave, with seq_q and seq_k of their buffers.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        parts: of the mask.
        pairs: most rows times keys of the buffers.
        longest: buffer of rows or keys.
        sequences: how many at most; as soon as the buffers are full there are no more.
    """
    hollow = supports.empty or not (supports.seq_q is not None or supports.seq_k is not None)
    lengths: list[tuple[int, int]] = []
    left_q = left_k = longest
    for _ in range(sequences):
        used_q, used_k = longest - left_q, longest - left_k
        room = _square_room(used_q, used_k, pairs)
        if lengths and (min(left_q, left_k) < 1 or room < 1):
            break
        found_q, found_k = _pair(draw, supports, parts, max(room, 1) ** 2, max(min(left_q, left_k), 1))
        if lengths and (used_q + found_q) * (used_k + found_k) > max(pairs, 1):
            break
        if hollow and draw(one_in(8)):
            found_q = found_k = 0
        lengths.append((found_q, found_k))
        left_q, left_k = left_q - found_q, left_k - found_k
    cu_q, cu_k = (tuple(accumulate((pair[axis] for pair in lengths), initial=0)) for axis in (0, 1))
    least = 0 if supports.empty else supports.seq_multiple
    seq_q, seq_k = max(cu_q[-1], least), max(cu_k[-1], least)
    if supports.square:
        seq_q = seq_k = max(seq_q, seq_k)
    return Packed(cu_q, cu_k), seq_q, seq_k


def _square_room(rows: int, keys: int, pairs: int) -> int:
    """The largest n with (rows + n) * (keys + n) <= pairs."""
    total = rows + keys
    return max((isqrt(max(total * total + 4 * (pairs - rows * keys), 0)) - total) // 2, 0)


def _together(supports: Supports, parts: frozenset[str]) -> bool:
    return supports.square or ("causal" in parts and not supports.rectangular_causal)


def _pair(draw: Draw, supports: Supports, parts: frozenset[str], pairs: int, longest: int) -> tuple[int, int]:
    """Rows and keys of one sequence."""
    rows, keys = supports.rows(), supports.keys()
    if _together(supports, parts):
        both = rows & keys
        length = _accepted(draw, both, both.first() or 1, min(longest, isqrt(pairs)))
        return length, length
    shape = draw(sampled_from(_SHAPES))
    limit_q = min(longest, pairs, _TREE_NODES if "tree" in parts else longest)
    if shape == "decode":
        limit_q = min(limit_q, _DECODE_ROWS)
    elif shape in ("prefill", "chunk") or "tree" in parts:
        limit_q = min(limit_q, isqrt(pairs))
    if (
        shape == "independent" and "tree" not in parts and draw(st.booleans())
    ):  # the keys first: they may be the long ones
        seq_k = _accepted(draw, keys, keys.first() or 1, min(longest, pairs))
        return _accepted(draw, rows, rows.first() or 1, min(limit_q, pairs // seq_k)), seq_k
    seq_q = _accepted(draw, rows, rows.first() or 1, limit_q)
    limit_k = min(longest, max(pairs // seq_q, 1))
    if shape == "prefill" and seq_q in keys:
        return seq_q, seq_q
    least = seq_q if shape == "chunk" or "tree" in parts else 1
    seq_k = _accepted(draw, keys, keys.first(least) or keys.first() or 1, limit_k)
    return (
        (seq_q, seq_k) if seq_k >= seq_q or "tree" not in parts else (rows.first() or 1, max(seq_k, rows.first() or 1))
    )


def _accepted(draw: Draw, lengths: Lengths, least: int, most: int) -> int:
    """A length from `least` to `most` that is declared, or the first one from `least` on where there is none."""
    if lengths.most is not None:
        most = min(most, lengths.most)
    drawn = log_uniform(draw, least, max(most, least))
    if drawn > _EDGE and draw(one_in(3)):
        drawn = min(drawn - drawn % _EDGE + draw(sampled_from((0, 1, -1))), most)
    if drawn in lengths:
        return drawn
    above = lengths.first(drawn)
    if above is not None and above <= most:
        return above
    below = [n for n in lengths.up_to(drawn, least) if n <= drawn]
    return below[-1] if below else (above or lengths.first() or 1)

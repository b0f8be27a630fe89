"""Lengths beyond those of a profile, in a few cases: the keys of a long cache, and more blocks than a small counter holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashverify.case.space.draws import Choices
from flashverify.case.space.matrix_features import decodes
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.supports import Supports

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["first_far_key", "long_keys", "many_blocks"]

_LONG = 12
"""One case in so many of a decoding subject has long keys; one costs seconds in the interpreter."""
_OCTAVES = (11, 15, 12, 15, 13, 15, 14)
"""Powers of two that long keys reach: integers of 16 bits and what is kept per split or page end there."""
_ROWS = 2
"""Most query rows over long keys."""
_USUAL = 2**10
"""Fewer keys than any of them."""
_ELEMENTS = 3 * 2**21
"""Most elements of k and v with long keys."""
_PAGES = 2**12
"""Most pages of a sequence with long keys: the interpreter walks over pages of one key one by one."""
_MANY = 3
"""One case in so many with blocks has more than `_EIGHT` blocks of keys, where the work of the profile allows that."""
_EIGHT, _TWELVE = 8, 12
_LONGEST = 400
"""Most keys of a case that has many blocks."""


def first_far_key(parts: frozenset[str], block_keys: int, keys: int) -> int:
    """The first of the keys for which a case is as long as it is, 0 where it is no longer than others."""
    if "blocks" in parts and keys > _EIGHT * block_keys:
        return _EIGHT * block_keys
    return keys // 2 if keys > _USUAL else 0


def long_keys(
    draw: Draw,
    supports: Supports,
    parts: frozenset[str],
    lengths: tuple[int, int],
    per_key: int,
    page: int | None = None,
) -> tuple[int, int]:
    """The lengths, in a few cases of a decoding subject with one or two query rows and 1,025 to 32,768 keys.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        parts: of the mask.
        lengths: rows and keys.
        per_key: elements of k and v for each key.
        page: keys of a page; None without pages.
    """
    plain = not parts & {"bitmap", "blocks"} and not supports.square
    if not decodes(supports) or not plain or 0 in lengths or not draw(one_in(_LONG)):
        return lengths
    most = 2 ** draw(sampled_from(_OCTAVES))
    rows, keys = min(lengths[0], _ROWS), Choices(draw).size(most // 2 + 1, most)
    keys = min(keys, _ELEMENTS // max(per_key, 1), _PAGES * (page or keys))
    rectangle = "causal" not in parts or supports.rectangular_causal
    fits = keys > lengths[1] and rectangle and _has(supports, rows, keys)
    return (rows, keys) if fits else lengths


def many_blocks(
    draw: Draw,
    supports: Supports,
    parts: frozenset[str],
    lengths: tuple[int, int],
    block_keys: int,
    pairs: int,
) -> tuple[int, int]:
    """The lengths, in a part of the cases with blocks with nine to twelve blocks of keys.

    Args:
        draw: of hypothesis.
        supports: what the subject declares.
        parts: of the mask.
        lengths: rows and keys.
        block_keys: keys of a block.
        pairs: most rows times keys by the work of the profile.
    """
    least = _EIGHT * block_keys + 1
    apart = not supports.square and ("causal" not in parts or supports.rectangular_causal)
    if "blocks" not in parts or not apart or 0 in lengths or lengths[1] >= least or least > min(pairs, _LONGEST):
        return lengths
    if not draw(one_in(_MANY)):
        return lengths
    keys = Choices(draw).integer(least, min(_TWELVE * block_keys, pairs, _LONGEST))
    rows = min(lengths[0], max(pairs // keys, 1))
    tree = "tree" in parts and keys < rows
    return (rows, keys) if _has(supports, rows, keys) and not tree else lengths


def _has(supports: Supports, rows: int, keys: int) -> bool:
    """Whether the subject declares these lengths."""
    query, key = supports.rows(), supports.keys()
    return rows in query and keys in key

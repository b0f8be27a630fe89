"""Simplifications of the mask: packed sequences, sparse patterns, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.campaign.shrink.changes import change, cumulate, down, trees_of
from flashverify.case.masks.mask import Blocks, Packed
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["numbers", "packed", "patterns"]

_BLOCK = 16
"""Rows and keys of a block that every kernel with blocks takes."""


def packed(case: Case) -> Iterator[Case | None]:
    """One sequence alone, dense or packed; fewer sequences; shorter ones; nothing behind the last one."""
    mask = case.mask
    if mask.packed is None:
        return
    lengths, trees = list(mask.packed.lengths()), trees_of(mask)
    for s, (rows, keys) in enumerate(lengths):
        dense = replace(mask, packed=None, tree=None if trees is None else trees[s])
        yield change(case, mask=dense, seq_q=rows, seq_k=keys)
    ends = (max(mask.packed.cu_q[-1], min(case.seq_q, 1)), max(mask.packed.cu_k[-1], min(case.seq_k, 1)))
    yield change(case, seq_q=ends[0], seq_k=ends[1])
    if len(lengths) > 1:
        for s in range(len(lengths)):
            yield _repack(case, lengths[s : s + 1], None if trees is None else trees[s : s + 1])
        for s in range(len(lengths)):
            rest = None if trees is None else trees[:s] + trees[s + 1 :]
            yield _repack(case, lengths[:s] + lengths[s + 1 :], rest)
    for s, (rows, keys) in enumerate(lengths):
        for size in down(max(rows, keys), 0):
            yield _repack(case, _with(lengths, s, (min(rows, size), min(keys, size))), trees)
        for size in down(rows, 0):
            yield _repack(case, _with(lengths, s, (size, keys)), trees)
        for size in down(keys, 0):
            yield _repack(case, _with(lengths, s, (rows, size)), trees)


def _with(lengths: list[tuple[int, int]], s: int, changed: tuple[int, int]) -> list[tuple[int, int]]:
    return [*lengths[:s], changed, *lengths[s + 1 :]]


def _repack(case: Case, lengths: list[tuple[int, int]], trees: list[tuple[int, ...]] | None) -> Case | None:
    """The case with sequences of these (rows, keys), and as much room behind the last one as before, at least 1 row and key."""
    before = case.mask.packed
    assert before is not None
    after = Packed(cumulate(rows for rows, _ in lengths), cumulate(keys for _, keys in lengths))
    tree = None
    if trees is not None:
        tree = tuple(p for nodes, (rows, _) in zip(trees, lengths, strict=True) for p in nodes[:rows])
    try:
        mask = replace(case.mask, packed=after, tree=tree)
    except UsageError:
        return None
    seq_q = max(case.seq_q - before.cu_q[-1] + after.cu_q[-1], min(case.seq_q, 1))
    seq_k = max(case.seq_k - before.cu_k[-1] + after.cu_k[-1], min(case.seq_k, 1))
    return change(case, mask=mask, seq_q=seq_q, seq_k=seq_k)


def patterns(case: Case) -> Iterator[Case | None]:
    """Of blocks and bitmask: everything live, nothing live, one pattern for all heads, the plainest block, small seeds."""
    for name in ("blocks", "bitmap"):
        pattern = getattr(case.mask, name)
        for changed in _simpler(pattern) if pattern is not None else ():
            simpler: dict[str, Any] = {name: replace(pattern, **changed)}
            yield change(case, mask=replace(case.mask, **simpler))


def _simpler(pattern: Any) -> Iterator[dict[str, Any]]:
    plain: dict[str, Any] = {"seed": 0, "each": False}
    if isinstance(pattern, Blocks):
        plain["butterfly"] = False
        for names in (("rows", "keys"), ("rows",), ("keys",)):
            if all(getattr(pattern, name) > _BLOCK for name in names):
                yield dict.fromkeys(names, _BLOCK)
        if pattern.butterfly:
            yield {"butterfly": False}
            yield {"live": 0, "seed": 0}
    for live in (256, 0):
        if pattern.live not in (256, live):
            yield {"live": live, **plain}
    if pattern.each:
        yield {"each": False}
    for seed in (0, 1, 2):
        if seed < pattern.seed:
            yield {"seed": seed}


def numbers(case: Case) -> Iterator[Case | None]:
    """Smaller declared lengths; windows open on one side, then narrower."""
    mask = case.mask
    for name in ("key_lengths", "query_lengths"):
        lengths: tuple[int, ...] = getattr(mask, name) or ()
        for b, length in enumerate(lengths):
            for size in down(length, 0):
                changed: dict[str, Any] = {name: (*lengths[:b], size, *lengths[b + 1 :])}
                yield change(case, mask=replace(mask, **changed))
    left, right = mask.window or (None, None)
    if left is not None and right is not None:
        yield change(case, mask=replace(mask, window=(None, right)))
        yield change(case, mask=replace(mask, window=(left, None)))
    for width in down(left or 0, 0):
        yield change(case, mask=replace(mask, window=(width, right)))
    for width in down(right or 0, 0):
        yield change(case, mask=replace(mask, window=(left, width)))

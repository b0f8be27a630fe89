"""A case with some axes replaced, and everything that depends on them cut to fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Mask, Packed
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.case import Case

__all__ = ["change", "cumulate", "down", "trees_of"]


def change(case: Case, **changes: Any) -> Case | None:
    """`case` with axes replaced and what depends on them cut to fit; None where no such case exists.

    Declared lengths, packed sequences, trees and edits are cut. A tree that is given with the mask is taken as it stands.
    """
    try:
        mask: Mask = changes.pop("mask", case.mask)
        batch = changes.get("batch", case.batch)
        seq_q, seq_k = changes.get("seq_q", case.seq_q), changes.get("seq_k", case.seq_k)
        if mask.key_lengths is not None:
            mask = replace(mask, key_lengths=tuple(min(n, seq_k) for n in mask.key_lengths[:batch]))
        if mask.query_lengths is not None:
            mask = replace(mask, query_lengths=tuple(min(n, seq_q) for n in mask.query_lengths[:batch]))
        if mask.packed is not None:
            mask = _cut_packed(mask, mask.packed, seq_q, seq_k)
        elif mask.tree is not None:
            mask = replace(mask, tree=mask.tree[:seq_q])
        values = changes.pop("values", case.values)
        bare = replace(case, **changes, mask=mask, values=replace(values, edits=()))
        shapes = bare.editable
        fitting = (
            e
            for e in values.edits
            if e.tensor in shapes and all(i < n for i, n in zip(e.index, shapes[e.tensor], strict=True))
        )
        return replace(bare, values=replace(values, edits=tuple(fitting)))
    except UsageError:
        return None


def _cut_packed(mask: Mask, packed: Packed, seq_q: int, seq_k: int) -> Mask:
    """The mask with every sequence cut at the end of the buffers, and its tree with it."""
    cut = Packed(tuple(min(c, seq_q) for c in packed.cu_q), tuple(min(c, seq_k) for c in packed.cu_k))
    trees = trees_of(mask)
    kept = [tree[:rows] for tree, (rows, _) in zip(trees, cut.lengths(), strict=True)] if trees is not None else None
    return replace(mask, packed=cut, tree=None if kept is None else sum(kept, ()))


def trees_of(mask: Mask) -> list[tuple[int, ...]] | None:
    """The tree of each packed sequence, or None."""
    if mask.packed is None or mask.tree is None:
        return None
    return [mask.tree[first:last] for first, last in pairwise(mask.packed.cu_q)]


def cumulate(lengths: Iterable[int]) -> tuple[int, ...]:
    """Cumulative lengths, from 0."""
    return tuple(accumulate(lengths, initial=0))


def down(value: int, low: int) -> Iterator[int]:
    """Smaller numbers, boldest first: low, then halving the step back up to value - 1."""
    step = value - low
    while step > 0:
        yield value - step
        step //= 2

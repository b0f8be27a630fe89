"""Where a case lies on the axes by which draws are counted: tiles, lengths, masks, trees, heads, modifiers."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from flashverify.case.masks.tree import has_entry_trees, single_trees
from flashverify.case.masks.tree_shapes import shape_of
from flashverify.case.modifiers.logits import modifiers_of
from flashverify.case.space.tile_sizes import USUAL_TILE, tile_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.case import Case

__all__ = ["pair_counts", "parts_of", "sequences_of", "tiles_of", "traits_of", "trees_of"]

_BINS = (4, 8, 16, 64)


def sequences_of(case: Case) -> tuple[tuple[int, int], ...]:
    """(rows, keys) of each sequence that belong to the problem."""
    mask, packed = case.mask, case.mask.packed
    if packed is not None:
        return packed.lengths()
    rows = mask.query_lengths or (case.seq_q,) * case.batch
    keys = mask.key_lengths or (case.seq_k,) * case.batch
    return tuple(zip(rows, keys, strict=True))


def tiles_of(case: Case, tile: tuple[int, int] = (USUAL_TILE, USUAL_TILE)) -> tuple[int, int]:
    """(tiles of queries, tiles of keys) of the longest sequence.

    Args:
        case: any.
        tile: rows and keys of a tile where the launch values of the case do not say it.
    """
    sizes = tile_of(case.launch, *tile)
    lengths = sequences_of(case)
    longest = (max((pair[axis] for pair in lengths), default=0) for axis in (0, 1))
    rows, keys = (-(-length // size) for length, size in zip(longest, sizes, strict=True))
    return rows, keys


def parts_of(case: Case) -> frozenset[str]:
    """Names of the parts of the mask, the modifiers and the storage that the case has."""
    paged = ("paged",) * (case.storage.page_size is not None)
    names = (modifier.name for modifier in modifiers_of(case))
    return frozenset((*case.mask.parts(), *names, *paged))


def trees_of(case: Case) -> list[tuple[tuple[int, ...], int]]:
    """The tree of each packed sequence or entry, or the one of all, each with the keys before its nodes."""
    mask = case.mask
    if mask.tree is None:
        return []
    trees = [tree for _, tree in single_trees(mask.tree, mask.packed)]
    if mask.packed is None:
        return [(tree, case.seq_k - case.seq_q) for tree in trees]
    return [(tree, keys - rows) for tree, (rows, keys) in zip(trees, mask.packed.lengths(), strict=True)]


def traits_of(case: Case, tile: tuple[int, int] = (USUAL_TILE, USUAL_TILE)) -> tuple[tuple[str, str], ...]:
    """(axis, value) of the case, one for each part that it has and one for each other axis.

    Args:
        case: any.
        tile: rows and keys of a tile of the subject's default launch.
    """
    return tuple(_traits(case, tile))


def pair_counts(drawn: Iterable[tuple[tuple[str, str], ...]]) -> Counter[tuple[tuple[str, str], tuple[str, str]]]:
    """How many cases have each two traits of different kinds."""
    counts: Counter[tuple[tuple[str, str], tuple[str, str]]] = Counter()
    for traits in drawn:
        counts.update(combinations(sorted(traits), 2))
    return counts


def _traits(case: Case, tile: tuple[int, int]) -> Iterator[tuple[str, str]]:
    rows, keys = tiles_of(case, tile)
    yield "query tiles", _many(rows)
    yield "key tiles", _many(keys)
    yield from (("part", name) for name in sorted(parts_of(case)))
    yield "dtype", case.dtype if case.precision == "ieee" else f"{case.dtype} {case.precision}"
    yield "group", _bin(case.heads_q // case.heads_kv)
    yield "head dim", _dim(case)
    if case.seq_q == 1 or case.seq_k == 1:
        yield "narrow", "one query" if case.seq_q == 1 else "one key"
    for shape in sorted({shape_of(tree) for tree, _ in trees_of(case)}):
        yield "tree", shape
    if case.mask.tree is not None and case.mask.packed is None and case.batch > 1:
        yield "trees of a batch", "one for each" if has_entry_trees(case.mask.tree) else "one for all"
    yield "layout", case.storage.layout
    if case.quantised is not None:
        yield "codes", case.quantised.codes
        yield "scales", f"{case.quantised.scales} {case.quantised.kind}"
    yield "gradients", case.grad.do if case.grad.backward else "none"


def _many(count: int) -> str:
    return str(count) if count < 3 else "3 or more"


def _bin(count: int) -> str:
    least = 1
    for most in _BINS:
        if count <= most:
            return str(count) if most == _BINS[0] else f"{least} to {most}"
        least = most + 1
    return f"above {_BINS[-1]}"


def _dim(case: Case) -> str:
    largest = max(case.dim_qk, case.dim_v)
    if case.dim_qk % 8 or case.dim_v % 8:
        return "no multiple of 8"
    size = "to 64" if largest <= 64 else "to 256" if largest <= 256 else "above 256"
    return size if case.dim_qk == case.dim_v else f"unequal, {size}"

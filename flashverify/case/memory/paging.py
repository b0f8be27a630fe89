"""k and v of a paged case: a pool of pages in a drawn order, and the table that finds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashverify.case.memory.arena import Placement
from flashverify.case.values import philox

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashverify.case.case import Case
    from flashverify.case.values.bits import Bits

__all__ = ["PageTable", "Pool", "fill_pages", "page_table", "pages_placement"]

_GARBAGE = (2**20, 2**30)
"""Page numbers that no pool has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Which page holds which keys.

    Attributes:
        entries: `[B, n]` int32; garbage beyond the last page of a sequence, and before the first.
        first: number of the first page of each sequence with a key that a window does not hide from every row; 0 without one.
        used: pages of each sequence that hold keys.
        pages: of the pool; those that no sequence uses are at least a fifth, and more than the sequences.
    """

    entries: NDArray[np.int32]
    first: tuple[int, ...]
    used: tuple[int, ...]
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """What is laid out in pages.

    Attributes:
        values: `[B, 1 or Hkv, Sk, channels]`; of what groups of keys share `[B, Hkv, ceil(Sk / keys)]`.
        dtype: of the pool.
        keys: keys that share an entry.
    """

    values: Bits
    dtype: str
    keys: int = 1

    @property
    def channels(self) -> int | None:
        """Entries of a key; None of what has one for each group of keys."""
        return self.values.shape[3] if self.values.ndim == 4 else None


def page_table(case: Case, poison: str) -> PageTable:
    """The table of a paged case, from its seed. Garbage is -1, 0 or large by the padding, so that following it is seen."""
    size, seed = case.storage.page_size, case.values.seed
    assert size is not None
    lengths = case.keys_inside or (case.seq_k,) * case.batch
    used = tuple(-(-length // size) for length in lengths)
    pages = sum(used) + case.batch + 1 + sum(used) // 4
    order = np.argsort(philox.words(seed, "pages/order", pages), kind="stable").astype(np.int32)
    shape = (case.batch, max(-(-case.seq_k // size), 1))
    fixed = {"zero": 0, "-inf": -1}
    entries = philox.integers(seed, f"pages/{poison}", shape, *_GARBAGE).astype(np.int32)
    if poison in fixed:
        entries[...] = fixed[poison]
    first = tuple(min(key // size, count) for key, count in zip(_first_keys(case, lengths), used, strict=True))
    taken = 0
    for b, (start, count) in enumerate(zip(first, used, strict=True)):
        entries[b, start:count] = order[taken + start : taken + count]
        taken += count
    return PageTable(entries=entries, first=first, used=used, pages=pages)


def _first_keys(case: Case, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Per sequence the first key inside the window of its first row: what lies before it is freed in a cache that rolls, unless it is kept."""
    left = (case.mask.window or (None, None))[0]
    if left is None or case.storage.kept_pages:
        return (0,) * case.batch
    rows = case.rows_inside or (case.seq_q,) * case.batch
    aligned = case.mask.aligned_at_end
    return tuple(max(0, aligned * (keys - count) - left) for keys, count in zip(lengths, rows, strict=True))


def pages_placement(case: Case, pages: int, pool: Pool) -> Placement:
    """Where the pool `[pages, page_size / keys, Hkv, channels]` lies: the layout orders rows and heads within a page."""
    storage = case.storage
    assert storage.page_size is not None
    size, dim = storage.page_size // pool.keys, pool.channels or 1
    heads = 1 if storage.expand else case.heads_kv
    row = dim + (0 if pool.channels is None else storage.gap)
    by_key, by_head = (row, size * row) if storage.layout == "bhsd" else (heads * row, row)
    return Placement(
        shape=(pages, size, case.heads_kv, dim),
        strides=(heads * size * row, by_key, 0 if storage.expand else by_head, 1),
        extent=pages * heads * size * row,
        offset=0 if pool.channels is None else storage.offset,
    )


def fill_pages(case: Case, table: PageTable, buffer: Bits, placement: Placement, pool: Pool) -> None:
    """Writes what the keys within the declared lengths have to their pages.

    Pages before the window of every row keep the padding.
    """
    from numpy.lib.stride_tricks import as_strided

    assert case.storage.page_size is not None
    size = case.storage.page_size // pool.keys
    values = pool.values if pool.channels is not None else pool.values[..., None]
    shape = (placement.shape[0], size, values.shape[1], placement.shape[3])
    view = as_strided(buffer[placement.start :], shape, tuple(stride * buffer.itemsize for stride in placement.strides))
    lengths = tuple(-(-keys // pool.keys) for keys in case.keys_inside or (case.seq_k,) * case.batch)
    for b, (count, length) in enumerate(zip(table.used, lengths, strict=True)):
        for number in range(table.first[b], count):
            first, last = number * size, min((number + 1) * size, length)
            view[table.entries[b, number], : last - first] = values[b, :, first:last].swapaxes(0, 1)

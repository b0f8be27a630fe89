"""Lists of blocks of keys, chosen by index: checked, and made into what the kernels walk."""

from dataclasses import dataclass

import torch

from flashverify_kernels.device.selection import SelectedBlocks
from flashverify_kernels.runtime import readable

_LAST = 2**31 - 1


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Selection:
    """Which blocks of keys the queries see.

    A list is a set: an entry that stands twice counts once, and -1, anywhere in it, names nothing.

    Args:
        indices: `[B or 1, Hkv or 1, ceil(Sq / rows), entries]` int32; list n is that of the queries n * rows and the rows - 1 after it.
        rows: queries that share a list.
        keys: keys of a block; block c holds the keys c * keys and the keys - 1 after it.
    """

    indices: torch.Tensor
    rows: int = 1
    keys: int = 1


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Prepared:
    """The lists as the kernels walk them.

    Attributes:
        lists: as `Selection.indices`, contiguous: every block once, in ascending order, then -1.
        counts: `[B or 1, Hkv or 1, lists]` int32, blocks of each list.
        selection: where they come from.
    """

    lists: torch.Tensor
    counts: torch.Tensor
    selection: Selection


def check_selection(selection: Selection, q: torch.Tensor, batch: int, kv_heads: int, sq: int, sk: int) -> None:
    """Check the lists against the problem.

    Raises:
        TypeError: `selection` is no Selection, or its indices are not int32.
        ValueError: a size, the device or an index is not accepted.
    """
    if not isinstance(selection, Selection):
        raise TypeError(f"selection: expected a Selection, got {type(selection).__name__}")
    for name in ("rows", "keys"):
        size = getattr(selection, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"selection: expected {name} >= 1, got {size!r}")
    indices, lists = selection.indices, -(-sq // selection.rows)
    if indices.dtype != torch.int32:
        raise TypeError(f"selection: expected int32 indices, got {indices.dtype}")
    accepted = ((1, batch), (1, kv_heads), (lists,))
    if indices.dim() != 4 or any(n not in sizes for n, sizes in zip(indices.shape[:3], accepted, strict=True)):
        expected = f"[1 or {batch}, 1 or {kv_heads}, {lists}, entries]"
        raise ValueError(f"selection: expected indices {expected}, got shape {tuple(indices.shape)}")
    if indices.device != q.device:
        raise ValueError(f"selection: expected device {q.device} (that of q), got {indices.device}")
    blocks = -(-sk // selection.keys)
    if readable(indices) and indices.numel() and not (int(indices.min()) >= -1 and int(indices.max()) < blocks):
        raise ValueError(f"selection: expected indices from -1 to {blocks - 1}")


def prepared(selection: Selection) -> Prepared:
    """Every block of a list once, in front, in ascending order."""
    ordered = selection.indices.sort(-1).values
    named = ordered >= 0
    named[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    front = ordered.masked_fill(~named, _LAST).sort(-1).values
    counts = named.sum(-1, dtype=torch.int32)
    return Prepared(lists=front.masked_fill(front == _LAST, -1).contiguous(), counts=counts, selection=selection)


def lists_of(found: Prepared) -> SelectedBlocks:
    """What the kernels that walk the lists take."""
    return _blocks(found, found.lists.shape[3], lists=found.lists, counts=found.counts)


def namers_of(found: Prepared, sk: int) -> SelectedBlocks:
    """What the kernel that walks the lists of a block takes. A block past the last key, which only a GPU is handed unread, is named by nobody."""
    blocks, lists = -(-sk // found.selection.keys), found.lists
    beyond = (lists < 0) | (lists >= blocks)
    ordered, order = lists.masked_fill(beyond, blocks).flatten(-2).sort(dim=-1, stable=True)
    numbers = torch.arange(blocks + 1, dtype=torch.int32, device=lists.device).expand(*lists.shape[:2], -1)
    begins = torch.searchsorted(ordered, numbers.contiguous())
    namers = (order // max(lists.shape[3], 1)).to(torch.int32)
    return _blocks(found, namers.shape[2], namers=namers, begins=begins)


def _blocks(found: Prepared, entries: int, **tables: torch.Tensor) -> SelectedBlocks:
    batch, heads = found.lists.shape[:2]
    return SelectedBlocks(
        **{name: tables.get(name) for name in ("lists", "counts", "namers", "begins")},
        batch=heads if batch > 1 else 0,
        head=1 if heads > 1 else 0,
        entries=entries,
        rows=found.selection.rows,
        keys=found.selection.keys,
    )

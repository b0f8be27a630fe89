"""The lists of a selection as arrays: the indices that a kernel is given, and the blocks that they name."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import torch

from flashverify.case.values import philox

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashverify.case.case import Case
    from flashverify.case.masks.selection import Selection

__all__ = ["lists_array", "named_array", "named_tensor"]


def lists_array(case: Case) -> NDArray[np.int32] | None:
    """The lists, int32 `[B or 1, Hkv or 1, ceil(Sq / rows), entries]`; read-only, kept for the last few cases; None without a selection."""
    selection = case.mask.selection
    if selection is None:
        return None
    batch, heads = (case.batch, case.heads_kv) if selection.each else (1, 1)
    return _lists(selection, (batch, heads, -(-case.seq_q // selection.rows)), -(-case.seq_k // selection.keys))


def named_array(lists: NDArray[np.int32], blocks: int) -> NDArray[np.bool_]:
    """Which of `blocks` blocks each list names, bool `[..., blocks]`: a block once or more often is the same, -1 names none."""
    named = np.zeros((*lists.shape[:-1], blocks + 1), dtype=np.bool_)
    np.put_along_axis(named, np.where(lists < 0, blocks, lists).astype(np.int64), True, -1)
    return named[..., :blocks]


def named_tensor(case: Case, device: torch.device | str = "cpu") -> torch.Tensor | None:
    """Which blocks a query head's rows see, bool `[B or 1, Hq or 1, ceil(Sq / rows), ceil(Sk / keys)]`; None without a selection."""
    lists, selection = lists_array(case), case.mask.selection
    if lists is None or selection is None:
        return None
    named = named_array(lists, -(-case.seq_k // selection.keys))
    if selection.each:
        named = named.repeat(case.heads_q // case.heads_kv, 1)
    return torch.from_numpy(named.copy()).to(device)


@functools.lru_cache(maxsize=4)
def _lists(selection: Selection, shape: tuple[int, int, int], blocks: int) -> NDArray[np.int32]:
    full = (*shape, selection.entries)
    if selection.distinct:
        order = np.argsort(
            philox.integers(selection.seed, "selection", (*shape, blocks), 0, 2**31 - 1), -1, kind="stable"
        )
        found = np.full(full, -1, dtype=np.int32)
        count = min(blocks, selection.entries)
        found[..., :count] = order[..., :count]
    else:
        found = philox.integers(selection.seed, "selection", full, 0, max(blocks - 1, 0)).astype(np.int32)
    kept = philox.integers(selection.seed, "selection/live", full, 0, 255) < selection.live
    found = np.where(kept & (blocks > 0), found, -1).astype(np.int32)
    if not selection.scattered:  # the named ones first, in the order of their draw
        found = np.take_along_axis(found, np.argsort(found < 0, -1, kind="stable"), -1)
    found.flags.writeable = False
    return found

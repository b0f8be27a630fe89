"""Sets of pairs by where the key's block stands in the list that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.selection_lists import lists_array
from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.extent import Extent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["by_lists"]

_NONE = 1 << 20
"""Entry of a block that a list does not name."""


def by_lists(scene: Scene, wrong: Tensor) -> Iterator[Extent]:
    """Sets of visible pairs by entries of a selection, the simpler ones first; none without one.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, visible pairs; numbers of entries are theirs.
    """
    if scene.case.mask.selection is None:
        return

    def seen(words: str, where: Callable[[dict[str, Tensor]], Tensor]) -> Extent:
        nothing = torch.zeros((), dtype=torch.bool)
        return Extent(words, lambda s: visible_of(s) & where(_places(s)) if s.case.mask.selection else nothing)

    mine = {name: x.expand(wrong.shape)[wrong] for name, x in _places(scene).items()}
    yield seen("block 0 of the keys, by whichever entry a list names it", lambda p: p["number"] == 0)
    yield seen(
        "the last block of the keys, by whichever entry a list names it", lambda p: p["number"] == p["blocks"] - 1
    )
    yield seen("blocks that stand behind a -1 in their list", lambda p: p["entry"] > p["gap"])
    yield seen("blocks that stand several times in their list", lambda p: p["times"] > 1)
    yield seen("the block that is named last in a list", lambda p: p["entry"] == p["last"])
    yield seen("the block that is named first in a list", lambda p: p["before"] == 0)
    yield seen("the block of the largest number in a list", lambda p: p["rank"] == p["count"] - 1)
    yield seen("the block of the smallest number in a list", lambda p: p["rank"] == 0)
    yield seen("every second entry of a list", lambda p: p["entry"] % 2 == 1)
    yield seen("every second block of a list, by their numbers", lambda p: p["rank"] % 2 == 1)
    low, high, rank = int(mine["entry"].min()), int(mine["entry"].max()), int(mine["rank"].min())
    yield seen(f"blocks behind the first {low} entries of a list", lambda p: p["entry"] >= low)
    yield seen(f"blocks in the first {high + 1} entries of a list", lambda p: p["entry"] <= high)
    yield seen(f"blocks behind the first {rank} of a list, by their numbers", lambda p: p["rank"] >= rank)


def _places(scene: Scene) -> dict[str, Tensor]:
    """Of each pair: the first entry that names the key's block, and so on, all broadcast to `[B, Hq, Sq, Sk]`.

    `gap` is the first entry that is -1, `last` the last one that is not, `before` the blocks named before, `rank` the place of the
    block by its number and `count` how many there are, each block once; `times` says how many entries name it, `number` which of the
    `blocks` it is.
    """
    if "entries of lists" not in scene.memo:
        case, selection, lists = scene.case, scene.case.mask.selection, lists_array(scene.case)
        assert selection is not None
        assert lists is not None
        blocks = -(-case.seq_k // selection.keys)
        index = torch.from_numpy(lists.copy()).long()
        number = torch.arange(index.shape[-1]).expand(index.shape)
        to = torch.where(index < 0, blocks, index)
        empty = torch.full((*index.shape[:3], blocks + 1), _NONE)
        entry = empty.scatter_reduce(-1, to, number, "amin")[..., :blocks]
        times = torch.zeros_like(empty).scatter_add(-1, to, torch.ones_like(to))[..., :blocks]
        named = entry < _NONE
        found = {
            "entry": entry,
            "number": torch.arange(blocks).expand(named.shape),
            "blocks": torch.full(named.shape, blocks),
            "times": times,
            "rank": named.long().cumsum(-1) - 1,
            "count": named.sum(-1, keepdim=True).expand(named.shape),
            "gap": torch.where(index < 0, number, _NONE).amin(-1, keepdim=True).expand(named.shape),
            "last": torch.where(named, entry, -1).amax(-1, keepdim=True).expand(named.shape),
            "before": entry - torch.where(named, entry, _NONE).amin(-1, keepdim=True),
        }
        rows, keys = torch.arange(case.seq_q) // selection.rows, torch.arange(case.seq_k) // selection.keys
        wide = {name: x.repeat_interleave(scene.group, 1) if x.shape[1] > 1 else x for name, x in found.items()}
        scene.memo["entries of lists"] = {name: x[:, :, rows][..., keys] for name, x in wide.items()}
    places: dict[str, Tensor] = scene.memo["entries of lists"]
    return places

"""Sets of pairs by the number of a packed row: the query heads of a group stand side by side, row * group + member."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.selection_lists import lists_array
from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.walk_limits import packed_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Numbers = Callable[[Scene], tuple[Tensor, Tensor]]

__all__ = ["by_packed_rows"]


def by_packed_rows(scene: Scene, output: str) -> Iterator[Extent]:
    """Sets of pairs by packed rows, of a sequence and of the lists that name a block; none where a group is one head."""
    if scene.group == 1:
        return
    if output in ("o", "dq"):
        yield from _sets("packed rows (row * group + member)", "the number of rows", _of_sequences)
    if scene.case.mask.selection is not None:
        which = "packed rows (row * group + member) of the lists that name the key's block, one list behind the other,"
        yield from _sets(which, "the number of rows in these lists", _of_lists)


def _sets(words: str, rows: str, numbers: Numbers) -> Iterator[Extent]:
    for t in (1, *TILES):
        tile = "" if t == 1 else f", rounded up to a tile of {t}"
        yield Extent(f"{words} from {rows} on{tile}", partial(_behind_rows, numbers=numbers, t=t))
        if t > 1:
            yield Extent(f"{words} behind the first {t}", partial(_from, numbers=numbers, t=t))
            yield Extent(f"{words} in the last tile of {t}", partial(_last, numbers=numbers, t=t, whole=True))
            yield Extent(f"{words} behind the last multiple of {t}", partial(_last, numbers=numbers, t=t, whole=False))


def _behind_rows(scene: Scene, numbers: Numbers, t: int) -> Tensor:
    number, rows = numbers(scene)
    return number >= -(-rows // t) * t


def _from(scene: Scene, numbers: Numbers, t: int) -> Tensor:
    return numbers(scene)[0] >= t


def _last(scene: Scene, numbers: Numbers, t: int, *, whole: bool) -> Tensor:
    number, rows = numbers(scene)
    end = rows * scene.group - int(whole)
    return number >= end // t * t


def _of_sequences(scene: Scene) -> tuple[Tensor, Tensor]:
    """Packed rows of a sequence, and the number of its rows."""
    return packed_row(scene), scene.at.rows[:, None, :, None]


def _of_lists(scene: Scene) -> tuple[Tensor, Tensor]:
    """Packed rows among those of all lists that name a key's block, and the number of rows of these lists."""
    if "packed rows of lists" not in scene.memo:
        case, selection, lists = scene.case, scene.case.mask.selection, lists_array(scene.case)
        if selection is None or lists is None:
            return torch.full((1, 1, 1, 1), -1), torch.zeros(1, 1, 1, 1, dtype=torch.int64)
        blocks = -(-case.seq_k // selection.keys)
        named = torch.zeros(*lists.shape[:3], blocks + 1, dtype=torch.int64)
        index = torch.from_numpy(lists.copy()).long()
        named.scatter_(-1, torch.where(index < 0, blocks, index), 1)
        named = named[..., :blocks]
        order, count = named.cumsum(2) - 1, named.sum(2, keepdim=True)
        row, key = torch.arange(case.seq_q), torch.arange(case.seq_k)
        order, count = (_to_pairs(scene, x, row // selection.rows, key // selection.keys) for x in (order, count))
        member = torch.arange(case.heads_q).view(1, -1, 1, 1) % scene.group
        within = (row % selection.rows).view(1, 1, -1, 1) * scene.group + member
        scene.memo["packed rows of lists"] = (
            order * selection.rows * scene.group + within,
            count * selection.rows,
        )
    found: tuple[Tensor, Tensor] = scene.memo["packed rows of lists"]
    return found


def _to_pairs(scene: Scene, x: Tensor, lists: Tensor, blocks: Tensor) -> Tensor:
    """From `[B or 1, Hkv or 1, lists or 1, blocks]` to what broadcasts to `[B, Hq, Sq, Sk]`."""
    if x.shape[1] > 1:
        x = x.repeat_interleave(scene.group, 1)
    if x.shape[2] > 1 or not int(lists[-1]):
        x = x[:, :, lists]
    return x[..., blocks]

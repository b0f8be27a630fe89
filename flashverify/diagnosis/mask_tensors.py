"""The parts of a mask as tensors of their own, so that a hypothesis can exchange one; tiles of keys."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from flashverify.case.masks.patterns import bitmap_tensor, blocks_tensor
from flashverify.diagnosis.hypothesis import TILES

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations, Finish
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["ancestors", "exchanged", "of_heads_open", "parts", "row_tiles", "seen", "tiles", "with_parts"]


def parts(scene: Scene) -> dict[str, Tensor]:
    """Every part of the mask of the case, bool, each broadcasts to `[B, Hq, Sq, Sk]`; their AND is the mask.

    `sequence`, `rows` (declared query lengths) and `keys` (declared key lengths) are always there; `causal`, `left`, `right`,
    `tree`, `bitmap` and `blocks` where the case has them.
    """
    case, at = scene.case, scene.at
    mask = case.mask
    i, j = at.row[:, None, :, None], at.key[:, None, None, :]
    position = i + at.shift[:, None, :, None]
    found = {
        "sequence": at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :],
        "rows": i < at.rows[:, None, :, None],
        "keys": j < at.key_limit[:, None, None, :],
    }
    if mask.causal is not None:
        found["causal"] = j <= position
    left, right = mask.window or (None, None)
    if left is not None:
        found["left"] = j >= position - left
    if right is not None:
        found["right"] = j <= position + right
    if mask.tree is not None:
        found["tree"] = tree(scene, ancestors(case.mask.tree or (), scene))
    bitmap, live = bitmap_tensor(case), blocks_tensor(case)
    if bitmap is not None:
        found["bitmap"] = bitmap
    if live is not None and mask.blocks is not None:
        found["blocks"] = spread_blocks(scene, live)
    return found


def seen(found: dict[str, Tensor]) -> Tensor:
    """The AND of the parts."""
    return reduce(torch.logical_and, found.values())


def with_parts(scene: Scene, **changed: Tensor | None) -> Inputs:
    """The declared problem with some parts of its mask exchanged; None drops one."""
    found = parts(scene)
    for name, part in changed.items():
        if part is None:
            found.pop(name, None)
        else:
            found[name] = part
    return replace(scene.inputs, visible=seen(found))


def spread_blocks(scene: Scene, live: Tensor) -> Tensor:
    """A pattern of blocks, bool `[B or 1, Hq or 1, blocks of rows, blocks of keys]`, as pairs."""
    case, blocks = scene.case, scene.case.mask.blocks
    assert blocks is not None
    rows, keys = torch.arange(case.seq_q) // blocks.rows, torch.arange(case.seq_k) // blocks.keys
    return live[:, :, rows.clamp(max=live.shape[2] - 1)[:, None], keys.clamp(max=live.shape[3] - 1)[None, :]]


def ancestors(parents: tuple[int, ...], scene: Scene) -> Tensor:
    """Bool `[Sq, nodes]`: entry (i, n) says that n is row i's node or an ancestor of it, numbered within its tree."""
    packed = scene.case.mask.packed
    starts = packed.cu_q if packed is not None else (0, len(parents))
    widest = max((b - a for a, b in pairwise(starts)), default=0)
    table = torch.zeros(scene.case.seq_q, max(widest, 1), dtype=torch.bool)
    for first, last in pairwise(starts):
        for node in range(last - first):
            parent = parents[first + node]
            if parent >= 0:
                table[first + node] |= table[first + parent]
            table[first + node, node] = True
    return table


def tree(scene: Scene, table: Tensor, *, moved: int = 0) -> Tensor:
    """The tree part of the mask by a table of rows and nodes; the nodes are the last keys, or lie `moved` keys behind."""
    at, case = scene.at, scene.case
    packed = case.mask.packed
    nodes: Any = case.seq_q if packed is None else at.rows[:, None, :, None]
    keys: Any = case.seq_k if packed is None else at.keys[:, None, :, None]
    node = at.key[:, None, None, :] - (keys - nodes) - moved
    number = torch.arange(case.seq_q).view(1, 1, -1, 1)
    inside = (node >= 0) & (node < table.shape[1])
    part: Tensor = (node < 0) | (inside & table[number, node.clamp(0, table.shape[1] - 1)])
    return part


def exchanged(x: Tensor, batch: int, heads: int) -> tuple[Tensor, Tensor]:
    """`[B or 1, Hq or 1, ...]` read with the strides of batch and head exchanged, as `[B, Hq, ...]`.

    An axis of size 1 has stride 0. The second tensor, bool `[B, Hq]`, says where that leaves `x`; the first one is `x`'s end there.
    """
    by_batch, by_head = (x.shape[1] if x.shape[0] > 1 else 0), int(x.shape[1] > 1)
    at = torch.arange(batch)[:, None] * by_head + torch.arange(heads)[None, :] * by_batch
    flat = x.flatten(0, 1)
    return flat[at.clamp(max=flat.shape[0] - 1)], at >= flat.shape[0]


def of_heads_open(scene: Scene, lost: Tensor) -> Finish | None:
    """Asks nothing of what the query heads `lost`, bool `[B or 1, Hq]`, reach; None where there are none."""
    if not bool(lost.any()):
        return None
    rows = lost.expand(scene.case.batch, -1).unsqueeze(-1)
    keys = rows.reshape(scene.case.batch, -1, scene.group, 1).any(2).unsqueeze(-1)
    where = {"lse": rows, "delta": rows, "o": rows.unsqueeze(-1), "dq": rows.unsqueeze(-1), "dk": keys, "dv": keys}
    everything = torch.ones((), dtype=torch.bool)

    def finish(found: Expectations) -> Expectations:
        return {name: x.open(where.get(name, everything)) for name, x in found.items()}

    return finish


def row_tiles(scene: Scene, x: Tensor, size: int) -> Tensor:
    """Bool pairs `[..., Sq, Sk]`: whether any row of the row's tile of `size` rows (of its sequence) has the key in `x`."""
    number = scene.at.row_sequence * scene.case.seq_q + scene.at.row // size  # [B, Sq]
    same = (number[:, :, None] == number[:, None, :]).double()
    return (same[:, None] @ x.double()) > 0


def tiles(scene: Scene) -> tuple[int, ...]:
    """Key tiles to try: the form's where it names one, else the usual ones; none that holds all keys and more."""
    named = scene.form.block_n
    keys = scene.case.seq_k
    sizes = TILES if named is None else (named, *(size for size in TILES if size != named))
    return tuple(size for size in sizes if size < 2 * keys or size == TILES[0] or size == named)

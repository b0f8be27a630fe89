"""The parts of a mask as tensors of their own, so that a hypothesis can exchange one; tiles of keys."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.pairs import tile_of_pairs
from flashverify.case.masks.predicate import visible_parts, widening
from flashverify.case.masks.tree import nodes_seen
from flashverify.diagnosis.hypothesis import TILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.case.masks.pairs import Pairs
    from flashverify.diagnosis.hypothesis import Expectations, Finish
    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = [
    "all_pairs",
    "exchanged",
    "of_heads_open",
    "parts",
    "row_tiles",
    "seen",
    "tiles",
    "visited_tiles",
    "with_parts",
]


def parts(scene: Scene) -> dict[str, Tensor]:
    """Every condition of the mask of the case by name, as `visible_parts` gives them; their AND is the mask."""
    return visible_parts(scene.case)


def seen(found: dict[str, Tensor]) -> Tensor:
    """The AND of the parts."""
    return reduce(torch.logical_and, found.values())


def with_parts(scene: Scene, **changed: Tensor | None) -> Inputs:
    """The declared problem with some parts of its mask exchanged; None drops one.

    What stands in the place of a part that another one widens, as a prefix widens a causal mask, is widened as well.
    """
    found, wider = parts(scene), widening(scene.case)
    for name, part in changed.items():
        if part is None:
            found.pop(name, None)
        else:
            found[name] = part | wider[name] if name in wider else part
    return replace(scene.inputs, visible=seen(found))


def all_pairs(scene: Scene) -> Pairs:
    """Every pair of the case."""
    return tile_of_pairs(scene.case, scene.at, slice(0, scene.case.seq_q), slice(0, scene.case.seq_k))


def spread_blocks(scene: Scene, live: Tensor) -> Tensor:
    """A pattern of blocks, bool `[B or 1, Hq or 1, blocks of rows, blocks of keys]`, as pairs."""
    blocks = scene.case.mask.blocks
    assert blocks is not None
    return all_pairs(scene).of(live, blocks.rows, blocks.keys)


def tree(scene: Scene, table: Tensor, *, moved: int = 0) -> Tensor:
    """The tree part of the mask by a table of rows and nodes; the nodes are the last keys, or lie `moved` keys behind."""
    return nodes_seen(all_pairs(scene), table, moved=moved)


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


def visited_tiles(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """The pairs of every tile that holds a visible one, bool `[B, Hq or 1, Sq, Sk]`, for usual tiles, with the tiles in words."""
    visible = scene.inputs.visible
    if visible is None:
        return
    visible = visible.expand(scene.case.batch, -1, -1, -1)
    at = scene.at
    inside = at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]
    number = at.key_sequence * scene.case.seq_k
    for rows in TILES:
        reached = row_tiles(scene, visible, rows)
        for keys in TILES:
            tile = number + at.key // keys
            same = (tile[:, :, None] == tile[:, None, :]).double()
            pairs = ((reached.double() @ same[:, None]) > 0) & inside
            yield pairs & (at.row < at.rows)[:, None, :, None], f"in tiles of {rows} rows and {keys} keys"

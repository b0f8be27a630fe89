"""Wrong semantics of where a walk over tiles begins and ends at the edge of a mask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import parts, seen, tiles, with_parts
from flashverify.outputs import BACKWARD, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["EDGES", "of_keys"]

_OF_ROWS = tuple(name for name in OUTPUTS if name not in ("dk", "dv"))
_BITS = frozenset({"bitmap", "tree"})
"""Parts of which kernels get a bit for each pair."""


def _window_begin(scene: Scene, by: str) -> Iterator[Alternative]:
    """The walk of a window begins at the wrong tile.

    `up`: the first key of the row tile rounded up to a multiple of the key tile; `last`: the first key of the tile's last row, rounded
    down; `full`: the tile with the last row's first key counts as full, so that rows of the tile see what lies before their window.
    """
    found = parts(scene)
    if "left" not in found or not scene.case.seq_q:
        return
    j = scene.at.key[:, None, None, :]
    at, left = scene.at, (scene.case.mask.window or (None, None))[0]
    assert left is not None
    right = (scene.case.mask.window or (None, None))[1]
    upper = 0 if scene.case.mask.causal is not None else right
    others = seen({name: part for name, part in found.items() if name != "left"})
    # dK and dV alone are wrong by no walk over keys: that of dQ begins like it
    outputs = OUTPUTS if by == "full" or "dq" in scene.failures else _OF_ROWS
    for rows in TILES:
        first_row = at.row // rows * rows
        last_row = torch.minimum(first_row + rows, at.rows) - 1
        first = (first_row + at.shift - left).clamp(min=0)[:, None, :, None]
        last = (last_row + at.shift - left).clamp(min=0)[:, None, :, None]
        end = at.keys[:, None, :, None]
        if upper is not None:
            end = torch.minimum(end, (last_row + at.shift + upper + 1)[:, None, :, None])
        for size in tiles(scene):
            detail = f"tiles of {rows} rows and {size} keys"
            if by == "up":
                part = found["left"] & (j >= -(-first // size) * size)
                detail = f"in the walk over the keys, {detail}"
            elif by == "last":
                part = found["left"] & (j >= last // size * size) & (last < end)
            else:
                taken = (j >= last // size * size) & (j < last)
                part = found["left"] | taken
                sure = at.keys[:, None, :, None]
                if upper is not None:
                    sure = torch.minimum(sure, (first_row + at.shift + upper + 1)[:, None, :, None])
                uncut = taken & (j < sure // size * size)  # a tile that the right edge or the last key cuts is masked
                if not torch.equal(taken, uncut) and bool((uncut & others & ~found["left"]).any()):
                    words = f"{detail}, unless it is cut on the other side too"
                    inputs = replace(scene.inputs, visible=others & (found["left"] | uncut))
                    yield Alternative(inputs=inputs, detail=words)
            yield Alternative(inputs=replace(scene.inputs, visible=others & part), detail=detail, outputs=outputs)


def _rounded_up(scene: Scene) -> Iterator[Alternative]:
    yield from _window_begin(scene, "up")
    yield from _queries_begin(scene, "up")


def _by_last_row(scene: Scene) -> Iterator[Alternative]:
    return _window_begin(scene, "last")


def _taken_for_full(scene: Scene) -> Iterator[Alternative]:
    yield from _window_begin(scene, "full")
    yield from _queries_begin(scene, "full")


def _queries_begin(scene: Scene, by: str) -> Iterator[Alternative]:
    """The walk over the queries of a tile of keys begins at the wrong row.

    `up`: the first row that may see a key of the tile, rounded up to a multiple of the tile of rows; `full`: the tile with the
    first row that sees the tile's last key counts as full, so that earlier rows in it see all keys of the tile.
    """
    mask, at = scene.case.mask, scene.at
    aligned = mask.causal is not None or mask.tree is not None  # no node of a tree sees one behind it
    right = 0 if aligned else (mask.window or (None, None))[1]
    found = parts(scene)
    # of a tile with bits only rows behind the last one are sure
    bits = by == "full" and not _BITS.isdisjoint(found)
    if (right is None and not bits) or not scene.case.seq_q or not scene.case.seq_k:
        return
    i = at.row[:, None, :, None]
    shift, rows_of_key = of_keys(scene)
    upper = {name: part for name, part in found.items() if name in ("causal", "right", *_BITS)}
    others = seen({name: part for name, part in found.items() if name not in upper})
    for keys in TILES:
        first_key = at.key // keys * keys
        last_key = torch.minimum(first_key + keys, at.key_limit) - 1
        first, last = (
            torch.minimum((key - shift - (right or 0)).clamp(min=0), rows_of_key)[:, None, None, :]
            for key in (first_key, last_key)
        )
        sure = rows_of_key[:, None, None, :]
        last = (
            (sure if "bitmap" in found else torch.where((last_key >= shift)[:, None, None, :], sure, last))
            if bits
            else last
        )
        for rows in TILES:
            detail = f"tiles of {rows} rows and {keys} keys"
            if by == "up":
                visible = scene.inputs.visible
                if visible is not None and bool((visible & (i < first // rows * rows)).any()):
                    continue  # a prefix opens pairs before the edge, which a walk that begins there loses however it rounds
                inputs = with_parts(scene, begin=i >= -(-first // rows) * rows)
                yield Alternative(inputs=inputs, detail=f"in the walk over the queries, {detail}", outputs=BACKWARD)
            else:
                taken = (i >= last // rows * rows) & (i < last)
                widened = others & (seen(upper) | taken)
                yield Alternative(inputs=replace(scene.inputs, visible=widened), detail=detail)
                if bits:  # a walk whose first segment counts as none begins there
                    alone = widened & (i >= last // rows * rows)
                    detail = f"{detail}, the queries before it left out"
                    yield Alternative(inputs=replace(scene.inputs, visible=alone), detail=detail)


def of_keys(scene: Scene) -> tuple[Tensor, Tensor]:
    """Shift and declared rows of each key's sequence, `[B, Sk]`."""
    at, packed = scene.at, scene.case.mask.packed
    tree = scene.case.mask.tree is not None
    if packed is None:
        shift = at.keys - at.rows if tree else at.shift
        return shift[:, :1].expand_as(at.key), at.rows[:, :1].expand_as(at.key)
    lengths = torch.tensor([*packed.lengths(), (0, 0)], dtype=torch.int64)
    rows, keys = lengths[at.key_sequence.clamp(max=len(lengths) - 1)].unbind(-1)
    return (keys - rows if tree or scene.case.mask.causal == "bottom-right" else torch.zeros_like(rows)), rows


def _last_query(scene: Scene) -> Iterator[Alternative]:
    """The walk over the queries of a tile of keys ends before the last row whose window holds the tile's last key."""
    left = (scene.case.mask.window or (None, None))[0]
    if left is None or not scene.case.seq_q or not scene.case.seq_k:
        return
    found, at = parts(scene), scene.at
    i = at.row[:, None, :, None]
    shift, _ = of_keys(scene)
    for keys in TILES:
        last = torch.minimum(at.key // keys * keys + keys, at.key_limit) - 1
        end = (last - shift + left)[:, None, None, :]
        for rows in TILES:
            part = (i // rows * rows < end) & found["left"]
            yield Alternative(inputs=with_parts(scene, left=part), detail=f"tiles of {rows} rows and {keys} keys")


EDGES = (
    Semantics(
        name="walk-begin-rounded-up",
        sentence="the walk over tiles begins at a multiple of the tile rounded up, not down: keys or queries before it are left out",
        build=_rounded_up,
    ),
    Semantics(
        name="window-begin-of-last-row",
        sentence="the walk over the keys of a window begins where the last row of the tile begins: the other rows lose keys",
        build=_by_last_row,
    ),
    Semantics(
        name="edge-tile-unmasked",
        sentence="the first tile at the edge of the mask is taken for full: pairs that a window or a causal mask hides are seen there",
        build=_taken_for_full,
    ),
    Semantics(
        name="window-last-query-missing",
        sentence="the walk over the queries of a window ends one row early: the last row that sees a tile's last key is left out",
        build=_last_query,
        outputs=("dk", "dv"),
    ),
)

"""Wrong semantics of the walk over tiles: tiles skipped, counted twice, or taken for full."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.base import TILES, Alternative, Semantics
from flashverify.diagnosis.pairs import parts, seen, tiles, with_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.scene import Scene

__all__ = ["WALKS", "row_tiles"]


def row_tiles(scene: Scene, x: Tensor, size: int) -> Tensor:
    """Bool pairs `[..., Sq, Sk]`: whether any row of the row's tile of `size` rows (of its sequence) has the key in `x`."""
    number = scene.at.row_sequence * scene.case.seq_q + scene.at.row // size  # [B, Sq]
    same = (number[:, :, None] == number[:, None, :]).double()
    return (same[:, None] @ x.double()) > 0


def _last_tile(scene: Scene) -> Iterator[Alternative]:
    """The keys from the last multiple of the tile on."""
    j, end = scene.at.key[:, None, None, :], scene.at.key_limit[:, None, None, :]
    for size in tiles(scene):
        yield Alternative(inputs=with_parts(scene, tail=j < end // size * size), detail=f"a tile of {size} keys")


def _last_whole_tile(scene: Scene) -> Iterator[Alternative]:
    """The last tile, whether it is full or not."""
    j, end = scene.at.key[:, None, None, :], scene.at.key_limit[:, None, None, :]
    for size in tiles(scene):
        part = j < ((end - 1).clamp(min=0) // size) * size
        yield Alternative(inputs=with_parts(scene, tail=part), detail=f"a tile of {size} keys")


def _first_tile(scene: Scene) -> Iterator[Alternative]:
    j = scene.at.key[:, None, None, :]
    for size in tiles(scene):
        yield Alternative(inputs=with_parts(scene, first=j >= size), detail=f"a tile of {size} keys")


def _first_key(scene: Scene) -> Iterator[Alternative]:
    yield Alternative(inputs=with_parts(scene, first=scene.at.key[:, None, None, :] >= 1))


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
            elif by == "last":
                part = found["left"] & (j >= last // size * size) & (last < end)
            else:
                part = found["left"] | ((j >= last // size * size) & (j < last))
            yield Alternative(inputs=replace(scene.inputs, visible=others & part), detail=detail)


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
    right = 0 if mask.causal is not None else (mask.window or (None, None))[1]
    found = parts(scene)
    bits = by == "full" and "bitmap" in found  # of a tile with bits only rows behind the last one are sure
    if (right is None and not bits) or not scene.case.seq_q or not scene.case.seq_k:
        return
    i = at.row[:, None, :, None]
    shift, rows_of_key = _of_keys(scene)
    others = seen({name: part for name, part in found.items() if name not in ("causal", "right", "bitmap")})
    for keys in TILES:
        first_key = at.key // keys * keys
        last_key = torch.minimum(first_key + keys, at.key_limit) - 1
        first, last = (
            torch.minimum((key - shift - (right or 0)).clamp(min=0), rows_of_key)[:, None, None, :]
            for key in (first_key, last_key)
        )
        last = rows_of_key[:, None, None, :] if bits else last
        for rows in TILES:
            detail = f"tiles of {rows} rows and {keys} keys"
            if by == "up":
                yield Alternative(inputs=with_parts(scene, begin=i >= -(-first // rows) * rows), detail=detail)
            else:
                taken = (i >= last // rows * rows) & (i < last)
                upper = seen({name: found[name] for name in ("causal", "right", "bitmap") if name in found})
                yield Alternative(inputs=replace(scene.inputs, visible=others & (upper | taken)), detail=detail)


def _of_keys(scene: Scene) -> tuple[Tensor, Tensor]:
    """Shift and declared rows of each key's sequence, `[B, Sk]`."""
    at, packed = scene.at, scene.case.mask.packed
    if packed is None:
        return at.shift[:, :1].expand_as(at.key), at.rows[:, :1].expand_as(at.key)
    lengths = torch.tensor([*packed.lengths(), (0, 0)], dtype=torch.int64)
    rows, keys = lengths[at.key_sequence.clamp(max=len(lengths) - 1)].unbind(-1)
    return (keys - rows if scene.case.mask.causal == "bottom-right" else torch.zeros_like(rows)), rows


def _last_query(scene: Scene) -> Iterator[Alternative]:
    """The walk over the queries of a tile of keys ends before the last row whose window holds the tile's last key."""
    left = (scene.case.mask.window or (None, None))[0]
    if left is None or not scene.case.seq_q or not scene.case.seq_k:
        return
    found, at = parts(scene), scene.at
    i = at.row[:, None, :, None]
    shift, _ = _of_keys(scene)
    for keys in TILES:
        last = torch.minimum(at.key // keys * keys + keys, at.key_limit) - 1
        end = (last - shift + left)[:, None, None, :]
        for rows in TILES:
            part = (i // rows * rows < end) & found["left"]
            yield Alternative(inputs=with_parts(scene, left=part), detail=f"tiles of {rows} rows and {keys} keys")


def _split_tiles(scene: Scene) -> list[tuple[int, Tensor, Tensor]]:
    """Per number of splits and size of tile: the tile of each key and the number of tiles, where no window moves the begin."""
    case, size = scene.case, scene.form.block_n
    if scene.form.n_splits < 2 or size is None or case.mask.window is not None:
        return []
    tile = scene.at.key[:, None, None, :] // size
    j = scene.at.key[:, None, None, :]
    visible = scene.inputs.visible
    found = []
    if visible is None or case.mask.causal is None:
        end = scene.at.keys[:, None, :, None]
        found.append((size, tile, -(-end // size)))
    if visible is not None and case.mask.causal is not None:
        for rows in TILES:  # the walk of a tile of rows ends with the keys of its last one
            upper = row_tiles(scene, visible.expand(case.batch, case.heads_q, -1, -1), max(rows // scene.group, 1))
            end = (j + 1).where(upper, 0).amax(-1, keepdim=True)
            found.append((size, tile, -(-end // size)))
    return found


def _split_remainder(scene: Scene) -> Iterator[Alternative]:
    """Split s takes the tiles from tiles s // splits, but no more than tiles // splits (s + 1)."""
    n = scene.form.n_splits
    for _, tile, count in _split_tiles(scene):
        kept = torch.zeros_like(tile < count)
        for s in range(n):
            kept |= (tile >= count * s // n) & (tile < count // n * (s + 1))
        yield Alternative(inputs=with_parts(scene, splits=kept))


def _split_twice(scene: Scene) -> Iterator[Alternative]:
    """Every split but the first begins one tile too early."""
    n = scene.form.n_splits
    for _, tile, count in _split_tiles(scene):
        times = torch.zeros_like(tile * count, dtype=torch.float64)
        for s in range(n):
            first = (count * s // n - 1).clamp(min=0)
            times += ((tile >= first) & (tile < count * (s + 1) // n)).double()
        weight = times.clamp(min=1.0).log()
        yield Alternative(inputs=replace(scene.inputs, biases=(*scene.inputs.biases, weight)))


WALKS = (
    Semantics(
        name="tail-keys-skipped",
        sentence="the keys behind the last whole tile are left out",
        build=_last_tile,
    ),
    Semantics(name="last-key-tile-skipped", sentence="the last tile of keys is left out", build=_last_whole_tile),
    Semantics(name="first-key-tile-skipped", sentence="the first tile of keys is left out", build=_first_tile),
    Semantics(name="first-key-missing", sentence="the first key of each sequence is left out", build=_first_key),
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
    Semantics(
        name="split-remainder-lost",
        sentence="tiles that do not divide by the number of splits are left out",
        build=_split_remainder,
        outputs=("o", "lse"),
    ),
    Semantics(
        name="split-tile-twice",
        sentence="the last tile of a split is counted by the next split too",
        build=_split_twice,
        outputs=("o", "lse"),
    ),
)

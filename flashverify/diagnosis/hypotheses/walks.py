"""Wrong semantics of the walk over tiles: tiles skipped or counted twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import row_tiles, tiles, with_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["WALKS"]


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

"""Wrong semantics of the draws of dropout inside of a tile: those of another pair of it, as a reshape in place of a transpose gives."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.truth import kept_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["DRAWS_IN_TILES"]


def _of_whole_tiles(scene: Scene) -> Tensor:
    """The kept pairs of all sequences, each filled up to whole tiles of any size, `[sequences, Hq, rows, keys]`."""
    if "draws of whole tiles" not in scene.memo:
        at, p, case, most = scene.at, scene.problem, scene.case, TILES[-1]
        rows, keys = ((int(x.max()) // most + 1) * most for x in (at.row, at.key))
        count = int(at.row_sequence.max()) + 1
        found = kept_pairs(
            seed=p.dropout_seed,
            offset=p.dropout_offset,
            p=case.dropout,
            heads=case.heads_q,
            sequence=torch.arange(count)[:, None].expand(count, rows),
            row=torch.arange(rows).expand(count, rows),
            key=torch.arange(keys).expand(count, keys),
        )
        scene.memo["draws of whole tiles"] = found(slice(0, rows), slice(0, keys))
    kept: Tensor = scene.memo["draws of whole tiles"]
    return kept


def _reshaped(scene: Scene) -> Iterator[Alternative]:
    """A tile of draws, rows by keys, is taken as it lies in memory for one of keys by rows."""
    case, at = scene.case, scene.at
    if not case.dropout or not case.seq_q or not case.seq_k:
        return
    row, key = at.row[:, :, None], at.key[:, None, :]
    sequence = at.row_sequence[:, :, None]
    kept = _of_whole_tiles(scene)
    whole = () if case.mask.packed is not None else ((case.seq_q, case.seq_k),)
    for rows, keys in (*whole, *product(TILES, TILES)):
        place = key % keys * rows + row % rows
        other_row, other_key = row - row % rows + place // keys, key - key % keys + place % keys
        read = kept[sequence, :, other_row, other_key].permute(0, 3, 1, 2)
        tile = "the tile of all rows and keys" if (rows, keys) in whole else f"a tile of {rows} rows and {keys} keys"
        how = "transposed" if rows == keys and (rows, keys) not in whole else "reshaped"
        yield Alternative(inputs=replace(scene.inputs, keep=read), detail=f"{tile} is {how}")


DRAWS_IN_TILES = (
    Semantics(
        name="dropout-draws-of-another-pair",
        sentence="a pair is dropped by the draws of another pair of its tile",
        build=_reshaped,
    ),
)

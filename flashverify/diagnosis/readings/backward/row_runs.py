"""Rows that a sum leaves out, from the first one on or to the last one: where they end is read off the sum, and the size of a tile off that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.backward.pair_places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["rows_in_runs"]

_LEAST = 4
"""Rows of a tile, at least."""
_SIZES = 6
"""Sizes of a tile that are tried of those that give the same rows."""


def rows_in_runs(scene: Scene, addends: Tensor, error: Tensor, bound: Tensor) -> Iterator[Place]:
    """Sets of rows without which the sum is what was returned, the usual sizes of tiles first.

    Args:
        scene: of the sum.
        addends: `[B, Hq, Sq]`, what each row adds.
        error: `[Hq]`, what was returned minus what is declared.
        bound: `[Hq]`, how far that may be from the addends that are missing.
    """
    row = scene.at.row
    count = int(scene.at.rows.max()) if scene.at.rows.numel() else 0
    if count < 2:
        return
    flat = addends.transpose(0, 1).flatten(1)
    of_number = flat.new_zeros(flat.shape[0], int(row.max()) + 1).index_add_(1, row.reshape(-1).long(), flat)
    before = of_number.cumsum(1)[:, :-1]
    whole = of_number.sum(1, keepdim=True)
    for end in range(1, min(count, before.shape[1] + 1)):
        part = before[:, end - 1 : end]
        if bool(((error.unsqueeze(1) + part).abs() <= bound.unsqueeze(1)).all()):
            for size in _tiles(end):
                if (count - 1) // size * size == end:
                    yield Place(f"before the last tile of {size} rows", partial(_before_last, size))
            yield Place(f"in the first {end} rows", partial(_from, end, False))
        if bool(((error.unsqueeze(1) + whole - part).abs() <= bound.unsqueeze(1)).all()):
            yield Place(f"in rows from {end} on", partial(_from, end, True))
            for size in _tiles(end):
                if size != end and count // size * size == end:
                    yield Place(f"behind the last whole tile of {size} rows", partial(_behind_whole, size))


def _tiles(end: int) -> list[int]:
    """Sizes of which `end` is a multiple, powers of two first, the largest of them first."""
    found = [size for size in range(_LEAST, end + 1) if end % size == 0]
    return sorted(found, key=lambda size: (size & (size - 1) != 0, -size))[:_SIZES]


def _before_last(size: int, scene: Scene) -> Tensor:
    at = scene.at
    return (at.row < (at.rows - 1).clamp(min=0) // size * size)[:, None, :, None]


def _behind_whole(size: int, scene: Scene) -> Tensor:
    at = scene.at
    return (at.row >= at.rows // size * size)[:, None, :, None]


def _from(end: int, behind: bool, scene: Scene) -> Tensor:
    found = scene.at.row[:, None, :, None] >= end
    return found if behind else ~found

"""Wrong semantics of walks whose limit is that of another row or key of the tile: the first one for the last, or the last one for the first."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.edges import of_keys
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.diagnosis.mask_tensors import with_parts
from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["WALK_ENDS"]

_OF_KEYS = ("dk", "dv")
_OF_ROWS = tuple(name for name in OUTPUTS if name not in _OF_KEYS)


def _right_side(scene: Scene) -> int | None:
    """How far behind its own position a row sees; None where no mask ends its keys."""
    mask = scene.case.mask
    return 0 if mask.causal is not None else (mask.window or (None, None))[1]


def _ends(scene: Scene) -> Iterator[Alternative]:
    """A tile of rows walks no further than its first row sees, a tile of keys no further than its first key is seen."""
    case, at = scene.case, scene.at
    if not case.seq_q or not case.seq_k:
        return
    right, left = _right_side(scene), (case.mask.window or (None, None))[0]
    if right is not None:
        j = at.key[:, None, None, :]
        for rows, keys in product(TILES, TILES):
            end = (at.row // rows * rows + at.shift + right + 1).clamp(min=0)[:, None, :, None]
            kept = j // keys * keys < end
            yield _of_walk(scene, kept, f"in the walk over the keys, tiles of {rows} rows and {keys} keys", _OF_ROWS)
    if left is not None:
        i, (shift, _) = at.row[:, None, :, None], of_keys(scene)
        for keys, rows in product(TILES, TILES):
            end = (at.key // keys * keys - shift + left + 1)[:, None, None, :]
            kept = i // rows * rows < end
            yield _of_walk(scene, kept, f"in the walk over the queries, tiles of {rows} rows and {keys} keys", _OF_KEYS)


def _begins(scene: Scene) -> Iterator[Alternative]:
    """A tile of keys walks from the first row on that sees its last key."""
    case, at, right = scene.case, scene.at, _right_side(scene)
    if right is None or not case.seq_q or not case.seq_k:
        return
    i, (shift, count) = at.row[:, None, :, None], of_keys(scene)
    for keys, rows in product(TILES, TILES):
        last = torch.minimum(at.key // keys * keys + keys, at.key_limit) - 1
        first = torch.minimum((last - shift - right).clamp(min=0), count)[:, None, None, :]
        kept = i >= first // rows * rows
        yield _of_walk(scene, kept, f"tiles of {rows} rows and {keys} keys", _OF_KEYS)


def _by_the_row(scene: Scene) -> Iterator[Alternative]:
    """A tile of rows walks no further than to the number of its last row."""
    case, at = scene.case, scene.at
    if not case.seq_q or not case.seq_k:
        return
    j = at.key[:, None, None, :]
    for rows, keys in product(TILES, TILES):
        end = (at.row // rows * rows + rows)[:, None, :, None]
        yield _of_walk(scene, j // keys * keys < end, f"tiles of {rows} rows and {keys} keys", _OF_ROWS)


def _of_walk(scene: Scene, kept: Tensor, detail: str, outputs: tuple[str, ...]) -> Alternative:
    return Alternative(inputs=with_parts(scene, walk=kept), detail=detail, outputs=outputs)


WALK_ENDS = (
    Semantics(
        name="walk-end-of-the-first",
        sentence="the walk over tiles ends where that of the first row, or key, of the tile ends: the others lose keys, or queries",
        build=_ends,
    ),
    Semantics(
        name="walk-end-without-shift",
        sentence="the walk over the keys of a tile of rows ends with the number of its last row, as if no keys came before the first row",
        build=_by_the_row,
        outputs=_OF_ROWS,
    ),
    Semantics(
        name="walk-begin-of-the-last-key",
        sentence="the walk over the queries of a tile of keys begins where that of its last key begins: the others lose queries",
        build=_begins,
        outputs=_OF_KEYS,
    ),
)

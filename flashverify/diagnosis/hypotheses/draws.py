"""Wrong semantics of which draws of dropout are read, and of the factor that makes up for them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.dropout import drawn
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.truth import kept_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["DRAWS"]

_FARTHEST = 128
"""Times the rows and keys of a case up to which tiles are tried."""
_QUAD = 4
"""Neighbouring keys that share one Philox."""


def _kept(changes: Callable[[Scene], Iterator[tuple[Tensor, str]]]) -> Callable[[Scene], Iterator[Alternative]]:
    """Other kept pairs, `[B, Hq, Sq, Sk]`."""

    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.case.dropout and scene.case.seq_q and scene.case.seq_k:
            for kept, detail in changes(scene):
                yield Alternative(inputs=replace(scene.inputs, keep=kept), detail=detail)

    return build


def _first_head(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    kept = drawn(scene)
    if kept.shape[1] > 1:
        yield kept[:, :1].expand_as(kept), ""


def _kv_head(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    kept = drawn(scene)
    if scene.group > 1:
        yield kept[:, [h // scene.group for h in range(kept.shape[1])]], ""


def _in_tile(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows, keys or both are counted from the begin of their tile."""
    at, case = scene.at, scene.case
    for size in TILES:
        row, key = at.row % size, at.key % size
        if size < case.seq_q:
            yield drawn(scene, row=row), f"rows of a tile of {size}"
        if size < case.seq_k:
            yield drawn(scene, key=key), f"keys of a tile of {size}"
        if size < case.seq_q and size < case.seq_k:
            yield drawn(scene, row=row, key=key), f"rows and keys of a tile of {size}"
    if TILES[0] < max(case.seq_q, case.seq_k) and min(case.seq_q, case.seq_k) <= TILES[-1]:
        yield drawn(scene), ""  # of a larger tile, or of tiles on the other axis, nothing is wrong


def _positions(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows by their position, which a bottom-right mask moves."""
    if bool((scene.at.shift != 0).any()):
        yield drawn(scene, row=(scene.at.row + scene.at.shift).clamp(min=0)), ""


def _in_buffer(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows, keys or both of a packed sequence by their place among those of all sequences."""
    case = scene.case
    if case.mask.packed is None:
        return
    row, key = (torch.arange(size).expand(case.batch, -1) for size in (case.seq_q, case.seq_k))
    yield drawn(scene, row=row), "rows"
    yield drawn(scene, key=key), "keys"
    yield drawn(scene, row=row, key=key), "rows and keys"


def _neighbours(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """Rows and keys that are counted from another number on; one Philox serves four keys."""
    at = scene.at
    for more, words in ((1, "from 1 on"), (_QUAD, "four further")):
        yield drawn(scene, key=at.key + more), f"keys counted {words}"
    yield drawn(scene, row=at.row + 1), "rows counted from 1 on"
    yield drawn(scene, key=at.key // _QUAD), "keys in place of fours of keys"
    yield drawn(scene, key=at.key // _QUAD * _QUAD + _QUAD - 1 - at.key % _QUAD), "four keys in reverse"
    yield drawn(scene, key=at.key // _QUAD * _QUAD), "every four keys alike"


def _reshaped(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """The draws of a tile `[rows, keys]` that are read as `[keys, rows]` without being transposed, or the other way round; of all pairs too."""
    case = scene.case
    if case.mask.packed is not None:
        return
    for rows, keys in ((case.seq_q, case.seq_k), *product(TILES, TILES)):
        whole = (rows, keys) == (case.seq_q, case.seq_k)
        if rows > _FARTHEST * case.seq_q or keys > _FARTHEST * case.seq_k:
            continue
        table = _table(scene, -(-case.seq_q // rows) * rows, -(-case.seq_k // keys) * keys)
        i, j = torch.arange(case.seq_q)[:, None], torch.arange(case.seq_k)
        at_i, at_j = i % rows, j % keys
        flat = at_j * rows + at_i
        words = "of all rows and keys" if whole else "of a tile"  # whose size may follow the case
        yield table[:, :, i - at_i + flat // keys, j - at_j + flat % keys], words


def _table(scene: Scene, rows: int, keys: int) -> Tensor:
    """The draws of more rows and keys than there are, `[B, Hq, rows, keys]`."""
    batch, p = scene.case.batch, scene.problem
    number = torch.arange(batch)[:, None]
    found = kept_pairs(
        seed=p.dropout_seed,
        offset=p.dropout_offset,
        p=scene.case.dropout,
        heads=scene.case.heads_q,
        sequence=number.expand(batch, rows),
        row=torch.arange(rows).expand(batch, -1),
        key=torch.arange(keys).expand(batch, -1),
    )
    kept: Tensor = found(slice(0, rows), slice(0, keys))
    return kept


def _streams(scene: Scene) -> Iterator[tuple[Tensor, str]]:
    """The number of a head and sequence made in another way."""
    at, case = scene.at, scene.case
    count = int(at.row_sequence.max()) + 1
    if count < 2 and case.heads_q < 2:
        return
    by_head = [drawn(scene, heads=1, sequence=at.row_sequence + head * count) for head in range(case.heads_q)]
    yield torch.cat(by_head, 1), "head * sequences + sequence"
    yield drawn(scene, heads=1, sequence=at.row_sequence).expand(-1, case.heads_q, -1, -1), "the sequence alone"
    rows = [
        drawn(scene, heads=1, sequence=0 * at.row_sequence + head, row=at.row + at.row_sequence * case.seq_q)
        for head in range(case.heads_q)
    ]
    yield torch.cat(rows, 1), "the head, with rows numbered over all sequences"


DRAWS = (
    Semantics(
        name="dropout-tile-reshaped",
        sentence="the dropout draws are read in the order of keys and rows where they lie in that of rows and keys, without being transposed",
        build=_kept(_reshaped),
    ),
    Semantics(
        name="dropout-stream-of-first-head",
        sentence="every head gets the dropout draws of the first one",
        build=_kept(_first_head),
    ),
    Semantics(
        name="dropout-stream-of-kv-head",
        sentence="a head gets the dropout draws of the query head with the number of its kv head",
        build=_kept(_kv_head),
    ),
    Semantics(
        name="dropout-counted-in-tiles",
        sentence="the dropout draws are counted from the begin of a tile: tiles get the same ones",
        build=_kept(_in_tile),
    ),
    Semantics(
        name="dropout-by-position",
        sentence="the dropout draws of a row are those of its position on the diagonal",
        build=_kept(_positions),
    ),
    Semantics(
        name="dropout-counted-in-the-buffer",
        sentence="the dropout draws of a packed sequence are counted from the begin of the buffer, not of the sequence",
        build=_kept(_in_buffer),
        one_way=True,
    ),
    Semantics(
        name="dropout-counted-elsewhere",
        sentence="the dropout draws are those of other counters",
        build=_kept(_neighbours),
        one_way=True,
    ),
    Semantics(
        name="dropout-stream-numbered-otherwise",
        sentence="the stream of the dropout draws is not sequence * heads + head",
        build=_kept(_streams),
        one_way=True,
    ),
)

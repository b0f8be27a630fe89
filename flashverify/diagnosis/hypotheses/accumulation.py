"""Wrong semantics of sums over tiles: overwritten accumulators, tiles of rows that a gradient misses, tails that no tile computes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES, Alternative, Expectations, Semantics
from flashverify.diagnosis.mask_tensors import row_tiles, tiles, with_parts
from flashverify.formats import FORMATS
from flashverify.outputs import OF_DS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["ACCUMULATION"]

_OF_ROWS = ("o", "lse", "delta", "dq")


def _of_kept_keys(scene: Scene, kept: Tensor, detail: str) -> Alternative:
    """Only the keys `kept`, bool, which broadcasts to pairs, reach O and dQ; the LSE is that of all."""
    natural = scene.truth.forward()["lse"][0] * scene.unit
    least = max(FORMATS[scene.case.dtype].min_subnormal, FORMATS["fp32"].min_normal)

    def finish(found: Expectations) -> Expectations:
        if "o" not in found:
            return found
        row = (found["lse"].value * scene.unit - natural).exp().nan_to_num(0.0, 0.0, 0.0)
        o = found["o"].times(row.unsqueeze(-1))  # weights below the smallest normal number may be flushed
        lse = {name: right for name, right in scene.right.items() if name == "lse"}  # a subject may return none
        return {"o": replace(o, total=o.total + least), **lse}

    return Alternative(inputs=with_parts(scene, kept=kept), finish=finish, detail=detail)


def _one_tile_of_keys(which: str) -> Callable[[Scene], Iterator[Alternative]]:
    """Of the tiles of keys of a sequence only the first or the last one reaches O or dQ."""

    def build(scene: Scene) -> Iterator[Alternative]:
        key, end = scene.at.key[:, None, None, :], scene.at.key_limit[:, None, None, :]
        for size in tiles(scene):
            kept = key < size if which == "first" else key >= (end - 1).clamp(min=0) // size * size
            yield _of_kept_keys(scene, kept, f"a tile of {size} keys")

    return build


def _last_visited(scene: Scene) -> Iterator[Alternative]:
    """The last one where each tile of rows ends with its own last tile of keys, as under a causal mask."""
    visible, case = scene.inputs.visible, scene.case
    if visible is None or not case.seq_k:
        return
    key = scene.at.key[:, None, None, :]
    for rows in TILES:
        reached = row_tiles(scene, visible.expand(case.batch, -1, -1, -1), rows)
        last = (key + 1).where(reached, 0).amax(-1, keepdim=True) - 1
        for size in tiles(scene):
            kept = key >= last.clamp(min=0) // size * size
            yield _of_kept_keys(scene, kept, f"tiles of {rows} rows and {size} keys")


def _overwritten(scene: Scene) -> Iterator[Alternative]:
    yield from _one_tile_of_keys("last")(scene)
    yield from _last_visited(scene)


def _rows(kept: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """The gradients of keys sum over the rows for which `kept` (row, rows of the sequence, tile) holds."""

    def build(scene: Scene) -> Iterator[Alternative]:
        row, end = scene.at.row[:, None, :, None], scene.at.rows[:, None, :, None]
        for size in TILES:
            if size < 2 * scene.case.seq_q or size == TILES[0]:
                yield Alternative(inputs=with_parts(scene, kept=kept(row, end, size)), detail=f"a tile of {size} rows")

    return build


def _left_at_zero(axis: str) -> Callable[[Scene], Iterator[Alternative]]:
    """What belongs to rows or keys behind the last whole tile is 0; the LSE of a row may be -inf."""

    def build(scene: Scene) -> Iterator[Alternative]:
        size_of = scene.case.seq_q if axis == "row" else scene.case.seq_k
        for size in TILES:
            tail = torch.arange(size_of) >= size_of // size * size
            if not bool(tail.any()) or size >= 2 * size_of:
                continue
            for lse in (0.0, -math.inf)[: 1 + (axis == "row")]:

                def finish(found: Expectations, tail: Tensor = tail, lse: float = lse) -> Expectations:
                    for name in found:
                        if axis == "row" and name in ("lse", "delta"):
                            found[name] = found[name].pinned(tail, lse if name == "lse" else 0.0)
                        elif name in (("o", "dq") if axis == "row" else ("dk", "dv")):
                            found[name] = found[name].pinned(tail.unsqueeze(-1), 0.0)
                    return found

                yield Alternative(finish=finish, detail=f"a tile of {size} {axis}s")

    return build


ACCUMULATION = (
    Semantics(
        name="only-last-key-tile",
        sentence="only the last tile of keys reaches the sum: the accumulator is overwritten, not added to",
        build=_overwritten,
        outputs=("o", *OF_DS),
    ),
    Semantics(
        name="only-first-key-tile",
        sentence="only the first tile of keys reaches the sum",
        build=_one_tile_of_keys("first"),
        outputs=("o", *OF_DS),
    ),
    Semantics(
        name="only-last-row-tile",
        sentence="only the last tile of queries reaches the gradient of a key: the accumulator is overwritten, not added to",
        build=_rows(lambda row, end, size: row >= (end - 1).clamp(min=0) // size * size),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="only-first-row-tile",
        sentence="only the first tile of queries reaches the gradient of a key",
        build=_rows(lambda row, _end, size: row < size),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="tail-rows-skipped",
        sentence="the queries behind the last whole tile do not reach the gradient of a key",
        build=_rows(lambda row, end, size: row < end // size * size),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="last-row-tile-skipped",
        sentence="the last tile of queries does not reach the gradient of a key",
        build=_rows(lambda row, end, size: row < (end - 1).clamp(min=0) // size * size),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="first-row-tile-skipped",
        sentence="the first tile of queries does not reach the gradient of a key",
        build=_rows(lambda row, _end, size: row >= size),
        outputs=("dk", "dv"),
    ),
    Semantics(
        name="tail-rows-not-computed",
        sentence="rows behind the last whole tile are not computed: they are left at 0",
        build=_left_at_zero("row"),
        outputs=_OF_ROWS,
    ),
    Semantics(
        name="tail-keys-not-computed",
        sentence="the gradients of keys behind the last whole tile are not computed: they are left at 0",
        build=_left_at_zero("key"),
        outputs=("dk", "dv"),
    ),
)

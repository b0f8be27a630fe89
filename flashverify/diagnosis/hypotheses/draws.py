"""Wrong semantics of which draws of dropout are read, and of the factor that makes up for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from flashverify.diagnosis.hypotheses.dropout import drawn
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["DRAWS"]


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


DRAWS = (
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
)

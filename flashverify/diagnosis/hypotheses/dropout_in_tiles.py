"""Wrong semantics of dropout that some tiles of rows and keys do without."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.where_masked import cut_tiles
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.diagnosis.observation import Scene

__all__ = ["DROPOUT_IN_TILES"]


def _undropped(*, in_cut: bool) -> Callable[[Scene], Iterator[Alternative]]:
    """Nothing is dropped in tiles that need a mask, or in those that need none."""

    def build(scene: Scene) -> Iterator[Alternative]:
        i, case = scene.inputs, scene.case
        if not case.dropout or i.keep is None or not case.seq_q or not case.seq_k:
            return
        visible = torch.ones(1, 1, case.seq_q, case.seq_k, dtype=torch.bool) if i.visible is None else i.visible
        launch = dict(case.launch or ())
        own = launch.get("block_m"), launch.get("block_n", scene.form.block_n)
        for (rows, keys), (cut, words) in zip(product(TILES, TILES), cut_tiles(scene, visible), strict=True):
            detail = "the kernel's own" if rows == (own[0] or rows) and keys == own[1] else words
            free = cut if in_cut else ~cut
            if bool((visible & ~i.keep & free).any()):
                yield Alternative(inputs=replace(i, keep=i.keep | free), detail=detail)

    return build


def _undropped_everywhere(scene: Scene) -> Iterator[Alternative]:
    i = scene.inputs
    if scene.case.dropout and i.keep is not None:
        yield Alternative(inputs=replace(i, keep=torch.ones_like(i.keep)))


DROPOUT_IN_TILES = (
    Semantics(
        name="dropout-drops-nothing",
        sentence="nothing is dropped, and all is divided by the share that is kept",
        build=_undropped_everywhere,
    ),
    Semantics(
        name="dropout-ignored-in-whole-tiles",
        sentence="nothing is dropped in tiles of which every pair is visible",
        build=_undropped(in_cut=False),
        outputs=FORWARD,
        one_way=True,
    ),
    Semantics(
        name="dropout-ignored-in-masked-tiles",
        sentence="nothing is dropped in tiles that need a mask",
        build=_undropped(in_cut=True),
        outputs=FORWARD,
        one_way=True,
    ),
)

"""A wrong mask that shows only where a kernel asks its mask: tiles whose pairs are all visible are walked without it, others are skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.mask_tensors import row_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Alternative
    from flashverify.diagnosis.observation import Scene

    Build = Callable[[Scene], Iterator[Alternative]]

__all__ = ["asked_in_some_tiles", "cut_tiles"]


def asked_in_some_tiles(build: Build) -> Build:
    """The alternatives of `build`, which exchange a mask, and each of them in the tiles alone that the declared mask cuts."""

    def built(scene: Scene) -> Iterator[Alternative]:
        declared = scene.inputs.visible
        for each in build(scene):
            yield each
            wrong = each.inputs.visible if each.inputs is not None else None
            if declared is None or wrong is None or each.inputs is None:
                continue
            made: dict[bytes, Alternative] = {}
            for asked, tiles in cut_tiles(scene, declared):
                mixed = torch.where(asked, wrong, declared)
                key = bytes(mixed.numpy().tobytes())
                made.setdefault(key, replace(each, inputs=replace(each.inputs, visible=mixed)))
                yield replace(
                    made[key], detail=", ".join(filter(None, (each.detail, f"only in {tiles} that need a mask")))
                )

    return built


def cut_tiles(scene: Scene, visible: Tensor) -> Iterator[tuple[Tensor, str]]:
    """The pairs of every tile that holds a visible pair and a hidden one or the end of the keys, for usual tiles, with the tiles in words."""
    at = scene.at
    visible = visible.expand(scene.case.batch, -1, scene.case.seq_q, scene.case.seq_k)
    there = (at.row < at.rows)[:, None, :, None] & (
        at.row_sequence[:, None, :, None] == at.key_sequence[:, None, None, :]
    )
    for rows in TILES:
        shown = row_tiles(scene, visible & there, rows)
        hidden = row_tiles(scene, ~visible & there, rows)
        for keys in TILES:
            tile = at.key_sequence * scene.case.seq_k + at.key // keys
            same = (tile[:, :, None] == tile[:, None, :]).double()[:, None]
            whole = ((at.key // keys + 1) * keys <= at.key_limit)[:, None, None, :]
            cut = ((hidden.double() @ same) > 0) | ~whole
            yield (
                cut & ((shown.double() @ same) > 0) & there,
                f"tiles of {rows} rows and {keys} keys",
            )

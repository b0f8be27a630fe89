"""Problems in which a part of the mask decides whole tiles of pairs: where it decides pairs inside a tile alone, it may be asked tile by tile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.related_cases import grown
from flashverify.diagnosis.trials import work
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.diagnosis.observation import Scene

__all__ = ["DECIDING", "decides_tiles", "far_cases"]

DECIDING = frozenset({"causal", "window", "key-lengths", "query-lengths"})
"""Things of a problem that hide pairs by where they lie."""
_BEYOND = 24
"""Rows and keys beyond the largest tile."""


def far_cases(case: Case, thing: str) -> tuple[Case, Case] | None:
    """Two cases like `case` that differ in a thing of `DECIDING` by more than any tile holds; None where there are none of a usual size."""
    size = _tile(case) + _BEYOND
    group = case.heads_q // case.heads_kv
    rows, keys = max(0, size - case.seq_q), max(0, size - case.seq_k)
    one = grown(case, rows, keys, regime="normal", seed=221, batch=1, heads_q=group, heads_kv=1)
    try:
        mask = None if one is None or one.mask.packed is not None else _otherwise(one.mask, thing, size - 4)
        two = None if one is None or mask is None else replace(one, mask=mask)
    except UsageError:
        return None
    return None if one is None or two is None or work(one) > LARGEST else (one, two)


def decides_tiles(one: Scene, two: Scene) -> bool:
    """Whether some tile, of the largest size, holds pairs that one of two runs alone sees, and none that both see."""
    a, b = (_visible(scene) for scene in (one, two))
    size = _tile(one.case)
    return bool((_tiles(a ^ b, size) & ~_tiles(a & b, size)).any())


def _otherwise(mask: Mask, thing: str, far: int) -> Mask | None:
    """The mask without a causal part, with a window that is wider by `far`, or with lengths that are shorter by as much."""
    if thing == "causal":
        return replace(mask, causal=None) if mask.causal is not None else None
    if thing == "window":
        if mask.window is None:
            return None
        left, right = (None if side is None else side + far for side in mask.window)
        return replace(mask, window=(left, right))
    name = thing.replace("-", "_")
    lengths = getattr(mask, name)
    if lengths is None:
        return None
    shorter: dict[str, Any] = {name: tuple(max(0, n - far) for n in lengths)}
    return replace(mask, **shorter)


def _tile(case: Case) -> int:
    """The largest tile, of a kernel or of a pattern."""
    mask = case.mask
    blocks = () if mask.blocks is None else (mask.blocks.rows, mask.blocks.keys)
    return max(*TILES, *blocks, *(() if mask.selection is None else (mask.selection.rows, mask.selection.keys)))


def _visible(scene: Scene) -> Tensor:
    case, visible = scene.case, scene.inputs.visible
    shape = (case.batch, case.heads_q, case.seq_q, case.seq_k)
    return torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)


def _tiles(pairs: Tensor, size: int) -> Tensor:
    """Which tiles of `[B, H, Sq, Sk]` hold one of the pairs."""
    return torch.nn.functional.max_pool2d(pairs.double(), size, ceil_mode=True) > 0

"""Masks that lack one of their parts: what a backward that is not handed it computes with."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.masks.mask import without_part
from flashverify.case.masks.predicate import visible
from flashverify.diagnosis.readings.masks.ends import visible_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.masks.mask import Mask
    from flashverify.diagnosis.observation import Scene

__all__ = ["masks_without_a_part"]

_DENSE = frozenset({"packed", "selection"})
"""Parts without which the rows and keys are others."""


def masks_without_a_part(scene: Scene) -> Iterator[tuple[str, Callable[[Scene], Tensor]]]:
    """Masks in words and as bool `[B, Hq, Sq, Sk]`: without each part that the case has, with a side of the window alone."""
    mask = scene.case.mask
    for part, _ in mask.given():
        if part.name not in _DENSE:
            words = part.name.replace("_", " ")
            yield f"the mask without its {words}", partial(_changed, partial(_without, part.name))
    if mask.window is not None:
        for side, changed in (("left", lambda w: (None, w[1])), ("right", lambda w: (w[0], None))):
            yield f"the mask without the {side} side of its window", partial(_changed, partial(_windowed, changed))


def _without(name: str, mask: Mask) -> Mask:
    return without_part(mask, name)


def _windowed(changed: Callable[..., tuple[int | None, int | None]], mask: Mask) -> Mask | None:
    if mask.window is None:
        return None
    window = changed(mask.window)
    return without_part(mask, "window") if window == (None, None) else replace(mask, window=window)


def _changed(how: Callable[[Mask], Mask | None], scene: Scene) -> Tensor:
    found = how(scene.case.mask)
    case = None if found is None else change(scene.case, mask=found)
    mine = visible_of(scene)
    if case is None:
        return mine
    see, at = visible(case), scene.at
    if see is None:
        rows, keys = at.row < at.rows, at.key < at.key_limit
        return (rows[:, None, :, None] & keys[:, None, None, :]).expand(mine.shape)
    return see(slice(0, scene.case.seq_q), slice(0, scene.case.seq_k)).expand(mine.shape)

"""Rows that a sum over rows leaves out, counts twice or takes in part, by a value of theirs: a number in the code that is found by sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.quantities import QUANTITIES
from flashverify.diagnosis.readings.backward.value_places import beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.pair_places import Place

__all__ = ["rows_by_values"]

_FEWEST = 4
"""Rows that there must be."""


def rows_by_values(scene: Scene, s: Steps, parts: Tensor, missing: Tensor, bound: Tensor) -> Iterator[Place]:
    """Rows with a value below or above a number whose parts add up to what is missing of every element.

    Args:
        scene: the case.
        s: its steps.
        parts: `[B, Hq, Sq]`, what each row adds.
        missing: `[Hq]`, what the sum over sequences and rows differs by; or `[B, Hq, Sq]`, where each row is an element.
        bound: likewise: how far that may be off.
    """
    rows = s.some & (parts != 0)
    if int(rows.sum()) < _FEWEST:
        return
    for quantity in QUANTITIES:
        values = quantity.of(scene, s)
        if values is None or values.shape[3] != 1:
            continue
        values = values[..., 0]
        at = rows & torch.isfinite(values)
        order = values[at].argsort()
        for below in (True, False):
            turn = order if below else order.flip(0)
            count = _count(parts, missing, bound, at, turn)
            if 0 < count < len(turn):
                ranked = values[at][turn]
                yield from beside(quantity, ranked[:count], ranked[count:], below=below)


def _count(parts: Tensor, missing: Tensor, bound: Tensor, at: Tensor, turn: Tensor) -> int:
    """How many rows, in this order, add up to what is missing; 0 for none."""
    added = parts[at][turn]
    if missing.dim() == parts.dim():
        wrong, clear = (missing[at][turn].abs() > bound[at][turn]), added.abs() > 2 * bound[at][turn]
        near = (missing[at][turn] - added).abs() <= bound[at][turn]
        count = int(wrong.nonzero().max()) + 1 if bool(wrong.any()) else 0
        return count if bool((near | ~clear)[:count].all()) else 0
    head = torch.arange(parts.shape[1]).view(1, -1, 1).expand(parts.shape)[at][turn]
    hot = torch.nn.functional.one_hot(head, parts.shape[1]).double()
    sums = (hot * added.unsqueeze(-1)).cumsum(0)
    close = ((sums - missing).abs() <= bound).all(-1)
    return int(close.nonzero()[0]) + 1 if bool(close.any()) else 0

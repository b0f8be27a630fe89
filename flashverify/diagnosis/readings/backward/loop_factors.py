"""Sums that are multiplied inside of the loop that adds to them, so that what was added earlier counts by another power of the factor."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.diagnosis.hypothesis import TILES
from flashverify.diagnosis.readings.backward.numbers import numbers_near
from flashverify.diagnosis.readings.backward.variants import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number

__all__ = ["loop_factors"]

_FEWEST = 12
_CLOSE, _MOST = 0.3, 0.98
"""How far the logarithm of a ratio may be off at most pairs, and which share these are: rounding has as much of a small value."""
_NAMES = 3


class _Walk(NamedTuple):
    """How often a sum is multiplied after a pair was added to it.

    Attributes:
        words: after which step of the loop it is multiplied.
        later: `[B, Hq, Sq, Sk]` or broadcasts: how many further steps there are.
    """

    words: str
    later: Callable[[Scene, Steps], Tensor]


def loop_factors(reading: Any) -> Iterator[dict[str, Option]]:
    """Factors c to the power of the steps that follow in a loop, c read off the ratio of what was read to what is declared.

    Args:
        reading: a `fitting.Reading`.
    """
    s = reading.steps
    declared = reading.declared_values
    told = reading.asked & reading.certain & (reading.target.sign() == declared.sign())
    ratio = torch.where(told, reading.target / torch.where(told, declared, 1.0), 1.0)
    if int(told.sum()) < _FEWEST:
        return
    tried: set[bytes] = set()
    for walk in _walks(reading.output):
        later = walk.later(reading.scene, s).expand(ratio.shape)[told].double()
        key = bytes((later - later.min()).to(torch.int16).numpy().tobytes())
        if key in tried or float(later.max()) == float(later.min()):
            continue
        tried.add(key)
        logs = ratio[told].log()
        centred = later - later.mean()
        slope = float((centred * (logs - logs.mean())).sum() / (centred**2).sum())
        rest = (logs - logs.mean() - slope * centred).abs()
        error = float(reading.relative / (centred**2).mean().sqrt())  # of the many pairs the mean is known better
        if abs(slope) < error or float((rest <= _CLOSE).double().mean()) < _MOST:
            continue
        value = math.exp(slope)
        for number in numbers_near(value, max(error, 1e-4) * value, reading.scene)[:_NAMES]:
            how = f"the sum is multiplied by {number.words} after every {walk.words}, so that a pair counts once more for each that follows"
            yield {"counts": Option(how, partial(_power, number, walk))}


def _power(number: Number, walk: _Walk, scene: Scene, s: Steps) -> Tensor:
    return torch.as_tensor(number.of(scene), dtype=torch.float64) ** walk.later(scene, s)


def _walks(output: str) -> Iterator[_Walk]:
    """What the loop of a kernel may step through: tiles of keys for dQ, tiles of rows and heads of the group for dK and dV."""
    if output == "dq":
        for keys in TILES:
            for rows in TILES:
                yield _Walk(f"tile of {keys} keys", partial(_tiles_later, rows, keys, False))
        return
    if output == "dbias":
        return
    yield _Walk("query head of a group", _heads_later)
    for rows in TILES:
        for keys in TILES:
            yield _Walk(f"tile of {rows} rows", partial(_tiles_later, rows, keys, True))


def _heads_later(scene: Scene, s: Steps) -> Tensor:
    member = torch.arange(s.p.shape[1]) % scene.group
    return (scene.group - 1 - member).view(1, -1, 1, 1).expand(s.p.shape)


def _tiles_later(rows: int, keys: int, of_rows: bool, scene: Scene, s: Steps) -> Tensor:
    """Tiles with a visible pair that the walk of the pair's own tile of the other axis reaches later; those of the later heads of a group too."""
    at, shape = scene.at, s.p.shape
    row, key = at.row // rows, at.key // keys
    count_r, count_k = int(row.max()) + 1, int(key.max()) + 1
    first = (
        at.row_sequence.amin(1, keepdim=True) if at.row_sequence.shape[1] else 0
    )  # that of a batch without packed ones
    row, key = row + (at.row_sequence - first) * count_r, key + (at.key_sequence - first) * count_k
    count_r, count_k = int(row.max()) + 1, int(key.max()) + 1
    cell = (row[:, None, :, None] * count_k + key[:, None, None, :]).expand(shape).flatten(2)
    live = torch.zeros(*shape[:2], count_r * count_k, dtype=torch.float64)
    live.scatter_reduce_(2, cell, s.see.double().flatten(2), "amax")
    live = live.view(*shape[:2], count_r, count_k)
    axis = 2 if of_rows else 3
    later = live.flip(axis).cumsum(axis).flip(axis) - live
    if of_rows and scene.group > 1:
        whole = live.sum(2, keepdim=True)
        split = whole.view(shape[0], -1, scene.group, 1, count_k)
        behind = split.flip(2).cumsum(2).flip(2) - split
        later = later + behind.reshape(whole.shape)
    return later.flatten(2).gather(2, cell).view(shape)

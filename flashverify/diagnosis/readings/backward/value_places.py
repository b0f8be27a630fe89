"""Pairs and rows by their values: those whose weight, LSE, delta or another number lies below or above one that the code holds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.pair_places import Place
from flashverify.diagnosis.readings.backward.quantities import (
    QUANTITIES,
    known_steps,
    number_words,
    usual_between,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.quantities import Quantity

__all__ = ["beside", "value_places"]

_BEYOND = (0, 3)
"""Which of the values beyond the last wrong one may be the end of the interval of a number: those next to it may be right by chance."""

_EXACT = 0.02
"""Share of a number up to which the gap around it may be wide for it to be said without more."""


def value_places(scene: Scene, wrong: Tensor, asked: Tensor) -> Iterator[Place]:
    """Sets by one value that hold every pair of `wrong`.

    Args:
        scene: the case.
        wrong: bool `[B, Hq, Sq, Sk]`, at least one.
        asked: likewise: pairs that were compared.
    """
    s = known_steps(scene)
    if s is None:
        return
    for quantity in QUANTITIES:
        values = quantity.of(scene, s)
        if values is None:
            continue
        wide = values.expand(wrong.shape)
        known = asked & s.see & torch.isfinite(wide)
        if not bool((known | ~wrong).all()):
            continue
        found, every = wide[wrong], _distinct(wide[known])
        yield from _below(quantity, float(found.max()), every)
        yield from _above(quantity, float(found.min()), every)


def _below(quantity: Quantity, largest: float, every: Tensor) -> Iterator[Place]:
    """With t in (largest, the next value]."""
    for high in _nearest(every[every > largest]):
        for number in usual_between(largest, high, logarithm=quantity.logarithm):
            words = f"{quantity.words} is below {_roughly(number, high - largest, quantity)}"
            yield Place(words, partial(_pairs, quantity, number, below=True), True)


def _above(quantity: Quantity, smallest: float, every: Tensor) -> Iterator[Place]:
    """With t in [the value before, smallest)."""
    for low in _nearest(every[every < smallest].flip(0)):
        for number in usual_between(-smallest, -low, logarithm=quantity.logarithm):
            words = f"{quantity.words} is above {_roughly(-number, smallest - low, quantity)}"
            yield Place(words, partial(_pairs, quantity, -number, below=False), True)


def _roughly(number: float, gap: float, quantity: Quantity) -> str:
    """The number in words, which no value in a gap of that width tells from another one."""
    return "about " * (gap > _EXACT * abs(number) > 0) + number_words(number, logarithm=quantity.logarithm)


def _distinct(x: Tensor) -> Tensor:
    """Each value once, ascending."""
    ordered = x.sort().values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def _nearest(values: Tensor) -> Iterator[float]:
    if len(values):
        yield from dict.fromkeys(float(values[min(n, len(values) - 1)]) for n in _BEYOND)


def _pairs(quantity: Quantity, number: float, scene: Scene, *, below: bool) -> Tensor:
    s = known_steps(scene)
    values = None if s is None else quantity.of(scene, s)
    if s is None or values is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    beyond = (values < number) if below else (values > number)
    return beyond if values.shape[3] == 1 else beyond & s.see


def beside(quantity: Quantity, inside: Tensor, outside: Tensor, *, below: bool) -> Iterator[Place]:
    """Sets of one value that hold what has the values `inside`, and nothing that has the values `outside`, which lie on one side of these."""
    if below:
        yield from _below(quantity, float(inside.max()), _distinct(outside))
    else:
        yield from _above(quantity, float(inside.min()), _distinct(outside))

"""Gradients that are sums over pairs with other coefficients: the whole, or the part of dP, of delta or of dLSE, times a number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.numbers import NAMED, ONE
from flashverify.diagnosis.readings.backward.sum_readings import OF_SUMS, summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number

__all__ = ["NumberedSum", "numbered_sums"]

_OF_PAIRS = ("dbias", "drelative_bias")
_TERMS = ("dP", "delta", "dLSE")
_FEWEST = 2
"""Elements that a sum must have for a coefficient to be told from chance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberedSum:
    """A sum whose terms count another number of times.

    Attributes:
        output: `dbias` or `drelative_bias`.
        numbers: of dP, delta and dLSE.
    """

    output: str
    numbers: tuple[Number, Number, Number]

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where nothing is summed."""
        if scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None
        values = [number.of(scene) for number in self.numbers]
        if not all(map(_finite, values)):
            return None
        return Alternative(steps=lambda s: _changed(s, values))

    def words(self, dlse: bool) -> str:
        """A sentence without its full stop."""
        name, first = OF_SUMS[self.output], self.numbers[0]
        if all(number is first for number in self.numbers):
            return f"{name} is {first.words} times what is declared"
        said = [
            f"{term} is missing" if number.words == "0" else f"{term} counts {number.words} times"
            for term, number in zip(_TERMS, self.numbers, strict=True)
            if number.words != "1" and (dlse or term != "dLSE")
        ]
        return f"in {name} {' and '.join(said)}"


def numbered_sums(scene: Scene, output: str) -> Iterator[NumberedSum]:
    """Coefficients that give the output of a case, the simplest first; none for an output that is no sum over pairs.

    Args:
        scene: where it is wrong.
        output: one of `OF_SUMS`.
    """
    if output not in _OF_PAIRS or scene.o is None or scene.lse is None or scene.outputs[output].numel() < _FEWEST:
        return
    s, right, got = steps_of(scene.inputs, scene.o, scene.lse), scene.right[output], scene.outputs[output]
    parts = [summed(scene, output, x, s) for x in _terms(s)]
    asked = torch.isfinite(right.total) & torch.isfinite(got)
    if output in scene.free:
        asked = asked & ~scene.free[output]
    for numbers in _choices(scene):
        values = [number.of(scene) for number in numbers]
        if not all(map(_finite, values)):
            continue
        value = sum((n * x for n, x in zip(values, parts, strict=True)), torch.zeros_like(parts[0]))
        if bool(((got - value).abs() <= right.total * (1 + max(map(abs, values))))[asked].all()):
            yield NumberedSum(output=output, numbers=numbers)


def _choices(scene: Scene) -> Iterator[tuple[Number, Number, Number]]:
    others = sorted((each for each in NAMED if each is not ONE), key=lambda each: each.cost)
    for each in others:
        yield each, each, each
    for each in others:
        yield ONE, each, ONE
        yield each, ONE, ONE
        if scene.inputs.dlse is not None:
            yield ONE, ONE, each


def _terms(s: Steps) -> tuple[Tensor, Tensor, Tensor]:
    return s.p * s.dp, -s.p * s.delta.unsqueeze(-1), s.p * s.dlse.unsqueeze(-1)


def _changed(s: Steps, values: list[float]) -> Steps:
    total = torch.zeros_like(s.p)
    for value, x in zip(values, _terms(s), strict=True):
        total = total + value * x
    return replace(s, p=max(1.0, *map(abs, values)) * s.p, ds=s.formula(), dbias_ds=total)


def _finite(value: float) -> bool:
    return value - value == 0.0

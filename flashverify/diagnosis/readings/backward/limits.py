"""Gradients that are clipped to a number, or 0 below one, element by element as they are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.quantities import usual_between, usual_near
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.hypothesis import Expectations
    from flashverify.diagnosis.observation import Scene

__all__ = ["Limited", "limits"]

_ROUNDINGS = 2.0
"""Unit roundoffs that clipped elements may differ by."""


class Limited:
    """An output with a limit of its own.

    Args:
        output: `dq`, `dk` or `dv`.
        limit: the largest magnitude; or, where `flushed`, the least one that is not 0.
        flushed: whether smaller magnitudes are 0.
    """

    def __init__(self, output: str, limit: float, *, flushed: bool) -> None:
        self.output, self.limit, self.flushed = output, limit, flushed

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case; None where every element lies on the other side of the limit."""
        if (
            scene.inputs.do is None
            or self.output not in scene.right
            or not bool(self._beyond(scene.right[self.output].value).any())
        ):
            return None

        def finish(values: Expectations) -> Expectations:
            found = dict(values)
            if self.output in found:
                x = found[self.output]
                limited = x.value * 0.0 if self.flushed else x.value.clamp(-self.limit, self.limit)
                found[self.output] = replace(x, value=torch.where(self._beyond(x.value), limited, x.value), strict=None)
            return found

        return Alternative(finish=finish)

    def _beyond(self, value: Tensor) -> Tensor:
        size = value.abs()
        return (size < self.limit) & (size > 0) if self.flushed else size > self.limit

    def words(self) -> str:
        """A sentence without its full stop."""
        name = f"d{self.output[1:].upper()}"
        if self.flushed:
            return f"elements of {name} whose magnitude is below {self.limit:.4g} are 0"
        return f"elements of {name} have a magnitude of at most {self.limit:.4g}: they are clipped"


def limits(scene: Scene, output: str) -> Iterator[Limited]:
    """Limits that give the output of a case."""
    if output not in ("dq", "dk", "dv"):
        return
    wrong, right, got = scene.failures[output], scene.right[output].value, scene.outputs[output]
    sizes, declared = got[wrong].abs(), right[wrong].abs()
    if not bool((torch.isfinite(sizes) & torch.isfinite(declared)).all()):
        return
    tried: list[Limited] = []
    if bool((sizes == 0).all()):
        larger = right[~wrong].abs()
        larger = larger[larger > declared.max()]
        if len(larger):
            between = usual_between(float(declared.max()), float(larger.min()), logarithm=False)
            tried = [Limited(output, number, flushed=True) for number in between]
    else:
        value = float(sizes.median())
        error = _ROUNDINGS * FORMATS[scene.case.dtype].u * value
        if bool(((sizes - value).abs() <= error).all()) and bool((declared > value).all()):
            tried = [Limited(output, number, flushed=False) for number in usual_near(value, error, logarithm=False)]
    for each in tried:
        alternative = each.alternative(scene)
        if alternative is not None and scene.agrees(alternative, frozenset({output})):
            yield each

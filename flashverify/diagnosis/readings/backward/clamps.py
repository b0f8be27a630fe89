"""Steps that a kernel keeps on one side of a number: what was read is that number wherever the declared value lies beyond it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from flashverify.diagnosis.readings.backward.quantities import number_words, usual_near
from flashverify.diagnosis.readings.backward.variants import Option, RowTerms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["clamps"]

_BRACKET = 0.05
"""Least share of its magnitudes that dP - delta + dLSE must be for a weight to be read off dS."""
_FEWEST = 6
_MOST = 0.9
"""Share of the wrong pairs that must be so; others vanish in rounding."""
_SPREAD = 200.0
"""Roundings of a pair, relative, that values that are one number may differ by."""


class _Read(NamedTuple):
    """One step as it was read, and as it is declared.

    Attributes:
        step: that stands in its place in a formula.
        words: its name.
        read: `[B, Hq, Sq, Sk]`, what it must be for all else to be as declared.
        declared: likewise.
        logarithm: whether kernels hold it in base 2 as well.
        change: the step with the clamped values.
    """

    step: str
    words: str
    read: Tensor
    declared: Tensor
    logarithm: bool
    change: Callable[[Scene, Steps, Callable[[Tensor], Tensor]], Any]


def clamps(reading: Any) -> Iterator[dict[str, Option]]:
    """Steps that are one number at every wrong pair, with the declared values beyond it on one side.

    Args:
        reading: a `fitting.Reading`.
    """
    s = reading.steps
    for each, usable in _steps(reading):
        at = reading.wrong & s.see & usable & torch.isfinite(each.read)
        if int(at.sum()) < _FEWEST or int(at.sum()) * 2 < int((reading.wrong & s.see & (reading.target != 0)).sum()):
            continue
        read, declared = each.read[at], each.declared[at]
        size = each.step == "counts"
        if size:
            read, declared = read.abs(), declared.abs()
        value = float(read.median())
        error = _SPREAD * reading.relative * max(abs(value), 1.0 if each.logarithm else 0.0)
        if float(((read - value).abs() <= error).double().mean()) < _MOST or not error:
            continue
        low = float((declared < value).double().mean())
        if 1 - _MOST < low < _MOST:
            continue
        low = round(low)
        side = "at least" if low else "at most"
        known = max(float((read - value).abs().quantile(_MOST)), reading.relative * max(abs(value), 1e-3))
        for number in usual_near(value, known, logarithm=each.logarithm):
            how = f"{each.words} {side} {number_words(number, logarithm=each.logarithm)}"
            limits = (-number, number) if size else (number, None) if low else (None, number)
            yield {each.step: Option(how, partial(_value, each.change, limits), by_value=True)}


def _value(change: Callable[..., Any], limits: tuple[float | None, float | None], scene: Scene, s: Steps) -> Any:
    return change(scene, s, lambda x: x.clamp(*limits))


def _steps(reading: Any) -> Iterator[tuple[_Read, Tensor]]:
    """Each step, and the pairs at which it can be told."""
    s, target = reading.steps, reading.target / reading.effect.marks[reading.output]
    everywhere = torch.ones_like(s.see)
    rows = (s.dlse - s.delta).unsqueeze(-1)
    if reading.output == "dv":
        weights, told = target / s.kept, s.kept > 0
    else:
        slope = s.slope if reading.output != "dbias" else torch.ones_like(s.slope)
        bracket = s.dp + rows
        told = bracket.abs() > _BRACKET * (s.dp_size + (s.delta_size + s.dlse.abs()).unsqueeze(-1))
        weights = target / (slope * bracket)
        inner = target / (slope * s.p)
        wide = s.p.shape
        yield _Read("counts", "dS has a magnitude of", target, s.formula() * slope, False, _of_ds), everywhere
        yield _Read("dp", "dP is", inner - rows, s.dp, False, _of_dp), everywhere
        delta = s.delta.unsqueeze(-1).expand(wide)
        yield (
            _Read("rows", "delta is", s.dp + s.dlse.unsqueeze(-1) - inner, delta, False, _of_delta),
            everywhere,
        )
        if reading.scene.inputs.dlse is not None:
            dlse = s.dlse.unsqueeze(-1).expand(wide)
            yield _Read("rows", "dLSE is", inner - s.dp + s.delta.unsqueeze(-1), dlse, False, _of_dlse), everywhere
    told = told & (weights > 0)
    logs = weights.log()
    yield _Read("weights", "the weights of the backward are", weights, s.p, False, _of_weights), told
    lse = s.lse.unsqueeze(-1)
    yield _Read("weights", "the LSE that the weights take is", s.z - logs, lse.expand(s.p.shape), True, _of_lse), told
    yield _Read("weights", "the logits of the backward are", logs + lse, s.z, True, _of_logits), told


def _of_ds(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> Tensor:
    """The share of dS that is left."""
    ds = s.formula() * s.slope
    return torch.where(ds == 0, 1.0, clamp(ds) / ds)


def _of_dp(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> Tensor:
    return clamp(s.dp)


def _of_delta(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> RowTerms:
    return RowTerms(clamp(s.delta), s.dlse)


def _of_dlse(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> RowTerms:
    return RowTerms(s.delta, clamp(s.dlse))


def _of_weights(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.where(s.see, clamp(s.p), s.p)


def _of_lse(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> Tensor:
    return (s.z - clamp(s.lse).unsqueeze(-1)).exp()


def _of_logits(_scene: Scene, s: Steps, clamp: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.where(s.see, (clamp(s.z) - s.lse.unsqueeze(-1)).exp(), 0.0)

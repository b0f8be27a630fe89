"""Weights that are multiplied by an exponential of something that a row or a head has: its slope, its sink, its LSE, its number of keys."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.readings.backward.numbers import numbers_near
from flashverify.diagnosis.readings.backward.variants import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number

    _Of = Callable[[Scene, Steps], Tensor | None]

__all__ = ["quantity_factors"]

_FEWEST = 12
_MOST = 0.98
"""Share of the pairs that the exponential must give: rounding has as much of a small value."""
_NAMES = 2


def quantity_factors(reading: Any) -> Iterator[dict[str, Option]]:
    """Factors `exp(a q)`, a read off the logarithm of the ratio of what was read to what is declared.

    Args:
        reading: a `fitting.Reading`.
    """
    declared = reading.declared_values
    told = reading.asked & reading.certain & (reading.target.sign() == declared.sign())
    if int(told.sum()) < _FEWEST:
        return
    logs = (reading.target[told] / declared[told]).abs().log()
    for words, of in _QUANTITIES:
        found = of(reading.scene, reading.steps)
        if found is None:
            continue
        q = found.expand(told.shape)[told]
        spread = q - q.mean()
        if not bool(torch.isfinite(q).all()) or float(spread.abs().max()) < 1e-3:
            continue
        slope = float((spread * (logs - logs.mean())).sum() / (spread**2).sum())
        rest = (logs - logs.mean() - slope * spread).abs()
        error = max(float(reading.relative / (spread**2).mean().sqrt()), 1e-4 * abs(slope))
        if abs(slope) < 10 * error or float((rest <= 100 * reading.relative).double().mean()) < _MOST:
            continue
        for number in numbers_near(slope, error, reading.scene)[:_NAMES]:
            how = f"every weight is multiplied by exp({number.words} * {words})"
            yield {"counts": Option(how, partial(_power, number, of))}


def _power(number: Number, of: _Of, scene: Scene, s: Steps) -> Tensor | None:
    found = of(scene, s)
    return None if found is None else (number.of(scene) * found).exp().nan_to_num(0.0, 0.0, 0.0)


def _slopes(scene: Scene, _s: Steps) -> Tensor | None:
    slopes = scene.problem.slopes
    return None if slopes is None else slopes.detach().cpu().double().view(1, -1, 1, 1)


def _sinks(scene: Scene, _s: Steps) -> Tensor | None:
    return None if scene.inputs.sink is None else scene.inputs.sink.double().view(1, -1, 1, 1)


def _of_rows(value: Callable[[Steps], Tensor]) -> _Of:
    return lambda _scene, s: value(s).masked_fill(~s.some, 0.0).unsqueeze(-1) if s.z.shape[-1] else None


_QUANTITIES: tuple[tuple[str, _Of], ...] = (
    ("the slope of ALiBi", _slopes),
    ("the sink", _sinks),
    ("the LSE", _of_rows(lambda s: s.lse)),
    ("the largest logit of the row", _of_rows(lambda s: s.z.amax(-1))),
    ("the logarithm of the row sum", _of_rows(lambda s: s.lse - s.z.amax(-1))),
    (
        "the logarithm of the number of keys that the row sees",
        _of_rows(lambda s: s.see.sum(-1).clamp(min=1).double().log()),
    ),
    ("the weight of the sink", lambda _scene, s: None if s.sink_weight is None else s.sink_weight.unsqueeze(-1)),
)

"""The derivative of a softcap as it was read: a + b f, with a function f of the product or of the logit, a and b numbers with a name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import products
from flashverify.diagnosis.readings.backward.numbers import numbers_near
from flashverify.diagnosis.readings.backward.variants import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number

__all__ = ["slope_fits"]

_FEWEST = 12
_MOST = 0.98
"""Share of the pairs that must lie on the line."""
_CLEAR = 1e-2
"""Least spread of a function of which something can be read."""
_NAMES = 2
_NAMELESS = 2.0

_FUNCTIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("{}^2", lambda t: t**2),
    ("|{}|", torch.abs),
    ("{}", lambda t: t),
    ("{}^4", lambda t: t**4),
    ("{}^3", lambda t: t**3),
)


def _tanh(scene: Scene, _s: Steps) -> Tensor | None:
    cap = scene.inputs.softcap
    return torch.tanh(products(scene.inputs) / cap) if cap else None


def _argument(scene: Scene, _s: Steps) -> Tensor | None:
    cap = scene.inputs.softcap
    return products(scene.inputs) / cap if cap else None


def _logit(scene: Scene, s: Steps) -> Tensor | None:
    cap = scene.inputs.softcap
    return s.z.masked_fill(~s.see, 0.0) / cap if cap else None


_OF = (
    ("tanh", _tanh),
    ("x", _argument),
    ("z", _logit),
)
_MEANT = {"x": ", with the product over the cap as x", "z": ", with the whole logit over the cap as z"}


def slope_fits(reading: Any) -> Iterator[dict[str, Option]]:
    """Derivatives that give what was read, as far as two numbers can.

    Args:
        reading: a `fitting.Reading`.
    """
    scene, s = reading.scene, reading.steps
    if not scene.inputs.softcap or reading.output not in ("dq", "dk"):
        return
    inner = s.formula()
    size = s.p * (s.dp_size + (s.delta_size + s.dlse.abs()).unsqueeze(-1))
    told = reading.asked & s.see & (inner.abs() > _CLEAR * size) & (size > 0)
    if int(told.sum()) < _FEWEST:
        return
    read = (reading.target / reading.effect.marks[reading.output] / inner)[told]
    error = reading.relative * (size / inner.abs())[told]
    for name, of in _OF:
        t = of(scene, s)
        if t is None or not bool(torch.isfinite(t[told]).all()):
            continue
        for form, function in _FUNCTIONS:
            f = function(t.expand(told.shape)[told])
            left = torch.stack([torch.ones_like(f), f], -1) / error.unsqueeze(-1)
            if float(f.max() - f.min()) < _CLEAR:
                continue
            a, b = torch.linalg.lstsq(left, (read / error).unsqueeze(-1), driver="gelsd").solution[:, 0].tolist()
            if float(((read - a - b * f).abs() <= 4 * error).double().mean()) < _MOST or abs(b) < _CLEAR:
                continue
            unit = float(error.median()) + 1e-6
            spread = float((f - f.mean()).abs().mean())
            firsts, seconds = (numbers_near(x, 8 * unit / min(1.0, spread), scene)[:_NAMES] for x in (a, -b))
            for first, second in ((x, y) for x in firsts for y in seconds):
                if max(first.cost, second.cost) < _NAMELESS:
                    yield {"slope": _option(name, of, form, function, (first, second))}


def _option(
    name: str,
    of: Callable[[Scene, Steps], Tensor | None],
    form: str,
    function: Callable[[Tensor], Tensor],
    numbers: tuple[Number, Number],
) -> Option:
    first, second = (each.words for each in numbers)
    sign = "+" if second.startswith("-") else "-"
    size = second.removeprefix("-")
    last = f"{'' if size == '1' else f'{size} * '}{form.format(name)}"
    whole = f"{sign.strip('+')}{last}" if first == "0" else f"{first} {sign} {last}"
    words = f"the derivative of the softcap is taken as {whole}{_MEANT.get(name, '')}"
    return Option(words, partial(_value, of, function, numbers))


def _value(
    of: Callable[[Scene, Steps], Tensor | None],
    function: Callable[[Tensor], Tensor],
    numbers: tuple[Number, Number],
    scene: Scene,
    s: Steps,
) -> Tensor | None:
    t = of(scene, s)
    return None if t is None else (numbers[0].of(scene) - numbers[1].of(scene) * function(t)).expand(s.slope.shape)

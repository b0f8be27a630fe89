"""Weights that are exponentials of other sums of the declared terms: their coefficients by least squares over logarithms."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.readings.backward.numbers import Number, numbers_near
from flashverify.diagnosis.readings.backward.variants import Option, added_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene

__all__ = ["logarithms"]

_BRACKET = 0.2
"""Least share of its magnitudes that dP - delta + dLSE must be for a weight to be read off dS."""
_FEWEST = 30
_NAMES = 2


def logarithms(reading: Any) -> Iterator[Option]:
    """Variants of the weights `exp(sum of c * term)` over the scaled product, each thing that is added to it, and the LSE.

    Args:
        reading: a `fitting.Reading`.
    """
    scene, s = reading.scene, reading.steps
    weights, usable = _read_weights(reading)
    usable = usable & s.see & (weights > 1e-6) & (s.p > 1e-6)
    if int(usable.sum()) < _FEWEST:
        return
    terms = _terms(scene, s)
    left = torch.stack([x.expand(s.p.shape)[usable] for _, x in terms], -1)
    gram = left.mT @ left
    inverse = torch.linalg.pinv(gram, rtol=1e-10, hermitian=True)
    numbers = inverse @ (left.mT @ weights[usable].log())
    if float((left @ numbers - weights[usable].log()).abs().max()) > 100 * reading.relative:
        return
    errors = inverse.diagonal().clamp(min=0).sqrt() * 100 * reading.relative + 1e-5
    names = [_names(float(n), float(e), scene) for n, e in zip(numbers, errors, strict=True)]
    for chosen in product(*names):
        if any(each.words != "1" for each in chosen):
            yield _option(scene, chosen)


def _names(number: float, error: float, scene: Scene) -> list[Number]:
    return numbers_near(number, min(error, 0.02), scene)[:_NAMES]


def _read_weights(reading: Any) -> tuple[Tensor, Tensor]:
    """The weights in effect where all else is as declared, and where they can be told."""
    s, mark = reading.steps, reading.effect.marks[reading.output]
    if reading.output == "dv":
        factor, size = s.kept, s.kept
    else:
        rows = (s.dlse - s.delta).unsqueeze(-1)
        factor, size = s.dp + rows, s.dp_size + (s.delta_size + s.dlse.abs()).unsqueeze(-1)
        if reading.output != "dbias":
            factor, size = factor * s.slope, size
    usable = reading.asked & (factor.abs() > _BRACKET * size)
    return reading.target / torch.where(usable, factor * mark, 1.0), usable


def _terms(scene: Scene, s: Steps) -> list[tuple[str, Tensor]]:
    capped = modified(products(scene.inputs), scene.inputs, ())
    biases = [(name, bias.double()) for name, bias in zip(added_names(scene), scene.inputs.biases, strict=True)]
    return [("the product of Q and K", capped), *biases, ("the LSE", -s.lse.unsqueeze(-1))]


def _option(scene: Scene, numbers: tuple[Number, ...]) -> Option:
    names = [name for name, _ in _terms_named(scene)]
    known = dict(zip(names, numbers, strict=True))
    said = [
        f"{name} is left out of them" if number.words == "0" else f"{name} counts {number.words} times in them"
        for name, number in zip(names, numbers, strict=True)
        if number.words != "1"
    ]

    def value(other: Scene, s: Steps) -> Tensor | None:
        terms = _terms(other, s)
        if any(name not in known for name, _ in terms):
            return None
        z = sum((known[name].of(other) * x for name, x in terms), torch.zeros_like(s.p))
        return z.exp() * s.see

    return Option(f"the weights are another exponential: {' and '.join(said)}", value)


def _terms_named(scene: Scene) -> list[tuple[str, None]]:
    return [(name, None) for name in ("the product of Q and K", *added_names(scene), "the LSE")]

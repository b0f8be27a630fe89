"""Delta and the gradient of the sinks: formulas of the rows with other terms and coefficients, compared with what is returned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.backward_steps import steps_of
from flashverify.diagnosis.hypothesis import Alternative
from flashverify.diagnosis.readings.backward.gradient_variants import row_variants
from flashverify.diagnosis.readings.backward.numbers import NAMED, ONE, ZERO
from flashverify.diagnosis.readings.backward.row_averages import averaged_rows
from flashverify.diagnosis.readings.backward.row_products import other_deltas
from flashverify.diagnosis.readings.backward.variants import Option, RowTerms
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.backward_steps import Steps
    from flashverify.diagnosis.observation import Scene
    from flashverify.diagnosis.readings.backward.numbers import Number

__all__ = ["OF_ROWS", "RowFormula", "row_formulas"]

OF_ROWS = {"delta": "Delta as it is returned", "dsink": "dsink"}
"""Outputs that are made of delta and dLSE of the rows, with their names at the head of a sentence."""
_ROUNDINGS = 32
"""Unit roundoffs of fp32 that a sum of the rows may be off, of its magnitudes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowFormula:
    """Delta times one number and dLSE times another, of which one output is made.

    Attributes:
        output: `delta` or `dsink`.
        option: what stands for delta and dLSE; None for what is declared.
        numbers: of delta and of dLSE.
    """

    output: str
    option: Option | None
    numbers: tuple[Number, Number]

    @property
    def cost(self) -> float:
        """How far it is from what is declared."""
        one, other = self.numbers
        return (self.option is not None) + (one.cost if one is other else one.cost + other.cost)

    def terms(self, scene: Scene, s: Steps) -> RowTerms | None:
        """Delta and dLSE as they are in effect; None where the case has not what the option is about."""
        found = RowTerms(s.delta, s.dlse) if self.option is None else self.option.value(scene, s)
        if found is None:
            return None
        return RowTerms(found.delta * self.numbers[0].of(scene), found.dlse * self.numbers[1].of(scene))

    def alternative(self, scene: Scene) -> Alternative | None:
        """What it expects of the output on a case."""
        if scene.inputs.do is None or not scene.case.seq_q or not scene.case.seq_k:
            return None

        def steps(s: Steps) -> Steps:
            found = self.terms(scene, s)
            if found is None:
                return s
            return replace(s, delta=found.delta * s.some, dlse=found.dlse * s.some)

        return Alternative(steps=steps)

    def words(self, dlse: bool) -> str:
        """A sentence without its full stop."""
        one, other = self.numbers
        said = [] if self.option is None else [self.option.words]
        if one is other and one.words != "1":
            said.append(f"it is {one.words} times what is declared" if one.words != "0" else "it is 0")
        else:
            for name, number in (("delta", one), ("dLSE", other)):
                if number.words != "1" and (dlse or name == "delta"):
                    said.append(f"{name} is missing" if number.words == "0" else f"{name} counts {number.words} times")
        return f"{OF_ROWS[self.output]}: {' and '.join(said)}"


def row_formulas(scene: Scene, output: str, left: Callable[[], bool]) -> Iterator[RowFormula]:
    """Formulas that give the output of a case, the simplest first.

    Args:
        scene: where it is wrong.
        output: `delta` or `dsink`.
        left: whether there is time.
    """
    if scene.o is None or scene.lse is None:
        return
    s = steps_of(scene.inputs, scene.o, scene.lse)
    options: list[Option | None] = [None, *other_deltas(scene), *row_variants(scene), *averaged_rows(scene)]
    found = []
    for option in options:
        if not left():
            return
        plain = RowFormula(output=output, option=option, numbers=(ONE, ONE))
        terms = plain.terms(scene, s)
        if terms is None:
            continue
        none = torch.zeros_like(terms.delta)
        parts = [_made(output, scene, s, RowTerms(*each)) for each in ((terms.delta, none), (none, terms.dlse))]
        if not _may_fit(output, parts, scene, s):
            continue
        for numbers in _pairs(scene):
            if option is not None and all(each is ZERO for each in numbers):
                continue
            formula = replace(plain, numbers=numbers)
            value = sum((n.of(scene) * x for n, x in zip(numbers, parts, strict=True)), torch.zeros_like(parts[0]))
            if formula.cost and _fits(output, value, scene, s):
                found.append(formula)
    yield from sorted(found, key=lambda each: each.cost)


def _pairs(scene: Scene) -> Iterator[tuple[Number, Number]]:
    if scene.inputs.dlse is None:
        yield from ((each, each) for each in NAMED)
        return
    yield from ((each, each) for each in NAMED)
    for each in NAMED:
        if each is not ONE:
            yield each, ONE
            yield ONE, each


def _may_fit(output: str, parts: list[Tensor], scene: Scene, s: Steps) -> bool:
    """Whether some multiples of the terms give what was returned: least squares in units of the rounding leave one unit on average at most."""
    got = scene.outputs[output].double()
    unit = 1.01 * _ROUNDINGS * FORMATS["fp32"].u * (_made(output, scene, s, None) + 1.01 * got.abs())
    inside = (scene.at.row < scene.at.rows)[:, None, :].expand(s.lse.shape)
    asked = torch.ones_like(got, dtype=torch.bool) if output == "dsink" else inside
    if output in scene.free:
        asked = asked & ~scene.free[output]
    asked = asked & (unit > 0)
    left, right = torch.stack([x[asked] / unit[asked] for x in parts], -1), got[asked] / unit[asked]
    if not left.numel() or not bool(torch.isfinite(left).all() and torch.isfinite(right).all()):
        return True
    rest = right - left @ torch.linalg.lstsq(left, right.unsqueeze(-1), driver="gelsd").solution[:, 0]
    return bool((rest**2).mean() <= 1.0)


def _fits(output: str, value: Tensor, scene: Scene, s: Steps) -> bool:
    """Whether `value` is what was returned, within a share of the magnitudes."""
    size = _made(output, scene, s, None)
    near = (scene.outputs[output] - value).abs() <= _ROUNDINGS * FORMATS["fp32"].u * (size + value.abs())
    if output in scene.free:
        near = near | scene.free[output]
    inside = scene.at.row < scene.at.rows
    return bool((near if output == "dsink" else near[inside[:, None, :].expand(near.shape)]).all())


def _made(output: str, scene: Scene, s: Steps, terms: RowTerms | None) -> Tensor:
    """The output of these terms; of none the sum of magnitudes."""
    delta, dlse = (s.delta_size, -s.dlse.abs()) if terms is None else terms
    delta, dlse = delta * s.some, dlse * s.some
    if output == "delta":
        return delta - dlse if scene.form.stored_delta == "minus_dlse" else delta
    weight = torch.zeros_like(s.lse) if s.sink_weight is None else s.sink_weight
    return (weight * (delta - dlse)).sum((0, 2)) * (1.0 if terms is None else -1.0)

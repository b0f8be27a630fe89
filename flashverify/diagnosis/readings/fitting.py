"""The simplest formulas that give, within rounding, every pair that was read."""

from __future__ import annotations

from itertools import combinations, islice, product
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.readings.dictionary import options
from flashverify.diagnosis.readings.formulas import OPERANDS, STEPS_OF, Formula
from flashverify.diagnosis.readings.numbers import ONE, ZERO, numbers_near
from flashverify.diagnosis.readings.pair_places import covering_places, expanded
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.backward_probe import Effect
    from flashverify.diagnosis.readings.dictionary import Option
    from flashverify.diagnosis.readings.formulas import Columns
    from flashverify.diagnosis.readings.pair_places import Place

__all__ = ["Reading", "formulas"]

_FEWEST = 6
"""Pairs that are wrong, from which on a formula can be told."""
_NAMES = 3
"""Names of one coefficient that are tried."""


class _Fit(NamedTuple):
    numbers: Tensor
    errors: Tensor


class Reading:
    """What was read of one output, and what may be compared with it.

    Attributes:
        output: `dq`, `dk`, `dv` or `dbias`.
        asked: bool `[B, Hq, Sq, Sk]`: pairs of declared rows and keys.
        wrong: likewise: those that differ from what is declared by more than rounding.
    """

    def __init__(self, effect: Effect, output: str) -> None:
        self.effect, self.output = effect, output
        self.scene, self.steps = effect.scene, effect.steps
        at = self.scene.at
        rows, keys = at.row < at.rows, at.key < at.key_limit
        self.target = effect.read[output]
        self.asked = (rows[:, None, :, None] & keys[:, None, None, :]).expand(self.target.shape)
        self._relative, self._floor = _rounding(effect)
        declared = Formula(output=output, numbers=(ONE,) * (1 if output == "dv" else 3))
        columns = declared.columns(self.scene, self.steps)
        assert columns is not None
        ones = torch.ones(len(columns.values), dtype=torch.float64)
        values, sizes = self._seen(declared, columns)
        self.wrong = self.asked & ~self._near(ones, values, sizes)
        self._declared_sizes = sum(sizes)

    def _seen(self, formula: Formula, columns: Columns) -> tuple[list[Tensor], list[Tensor]]:
        """The terms as they stand in what was read."""
        mark = self.effect.marks[self.output]
        step = OPERANDS.get(self.output)
        values = [x * columns.slope for x in columns.values]
        sizes = [x * (columns.slope.abs() + (0.25 if self.scene.inputs.softcap else 0.0)) for x in columns.sizes]
        if step is None or step not in formula.changed:
            return [x * mark for x in values], [x * mark for x in sizes]
        read = formula.changed[step].value(self.scene, self.steps)
        return [self._moved(x, read) for x in values], [self._moved(x, read) for x in sizes]

    def _moved(self, x: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
        """The sums over pairs with an operand that is read elsewhere."""
        case, group = self.scene.case, self.scene.group
        if self.output == "dq":
            hot = torch.eye(case.seq_k, dtype=torch.float64) * self.effect.marks["dq"]
            return x @ read(hot.transpose(2, 3).contiguous())
        cells = torch.zeros(*x.shape[:3], group * case.seq_q, dtype=torch.float64)
        member = torch.arange(case.heads_q).view(-1, 1) % group
        at = (member * case.seq_q + torch.arange(case.seq_q)).expand(x.shape[:3]).unsqueeze(-1)
        cells.scatter_(3, at, self.effect.marks[self.output].expand(*x.shape[:3], 1))
        found = (x.mT @ read(cells)).reshape(x.shape[0], -1, group, x.shape[3], group * case.seq_q).sum(2)
        return found.reshape(*found.shape[:3], group, case.seq_q).permute(0, 1, 3, 4, 2).flatten(1, 2)

    def _near(self, numbers: Tensor, values: list[Tensor], sizes: list[Tensor]) -> Tensor:
        """Bool: pairs that are what a formula gives, within rounding."""
        error = self.target - sum(n * x for n, x in zip(numbers, values, strict=True))
        size = sum(abs(n) * x for n, x in zip(numbers, sizes, strict=True))
        return error.abs() <= self._relative * size + self._floor

    def fits(self, changed: dict[str, Option], place: Place | None) -> Iterator[Formula]:
        """Formulas with these steps that give every pair of the place; of no place they give all pairs."""
        count = 1 if self.output == "dv" else 3
        trial = Formula(output=self.output, changed=changed, numbers=(ONE,) * count, place=place)
        columns = trial.columns(self.scene, self.steps)
        if columns is None:
            return
        values, sizes = self._seen(trial, columns)
        where = self.asked if place is None else self.asked & expanded(place, self.scene)
        fit = self._solved(values, sizes, where)
        if fit is None or not bool(self._near(fit.numbers, values, sizes)[where].all()):
            return
        given = [float(x[where].abs().max()) > 0 for x in values]
        if not any(given):
            return
        near = [
            numbers_near(float(number), float(error), self.scene)[:_NAMES] if there else [ONE]
            for number, error, there in zip(fit.numbers, fit.errors, given, strict=True)
        ]
        alike = [each for each in near[given.index(True)] if all(each in names for names, g in zip(near, given, strict=True) if g)]
        chosen = [(each,) * count for each in alike] or list(product(*near))
        for numbers in chosen:
            exact = torch.tensor([each.of(self.scene) for each in numbers], dtype=torch.float64)
            if bool(self._near(exact, values, sizes)[where].all()):
                found = Formula(output=self.output, changed=changed, numbers=numbers, place=place)
                if found.cost:
                    yield found

    def _solved(self, values: list[Tensor], sizes: list[Tensor], where: Tensor) -> _Fit | None:
        """Least squares over the pairs, each in units of its rounding; errors are those that rounding allows."""
        tolerance = (self._relative * torch.maximum(sum(sizes), self._declared_sizes) + self._floor)[where]
        if not len(tolerance):
            return None
        left = torch.stack([x[where] / tolerance for x in values], -1)
        right = self.target[where] / tolerance
        gram = left.mT @ left
        scale = gram.diagonal().clamp(min=1e-300).rsqrt()
        inverse = torch.linalg.pinv(scale.unsqueeze(-1) * gram * scale, rtol=1e-9, hermitian=True)
        numbers = scale * (inverse @ (scale * (left.mT @ right)))
        strongest = left.abs().amax(0).clamp(min=1e-300)
        spread = (inverse.diagonal().clamp(min=0) * scale**2).sqrt() * 8
        return _Fit(numbers, torch.maximum(spread, 1.0 / strongest).clamp(max=0.02) + 1e-6)


def _rounding(effect: Effect) -> tuple[float, float]:
    """How far a pair may be off: a share of the magnitudes that it is summed from, and a distance."""
    case, s = effect.scene.case, effect.steps
    fine, own = FORMATS["fp32"].u, FORMATS[case.dtype]
    largest = float(torch.maximum(s.z.abs().masked_fill(~s.see, 0.0).amax(), s.lse.abs().amax())) if s.z.numel() else 0.0
    products = 2.0**-11 if case.precision == "tf32" else fine
    relative = 8 * max(own.u, products) + 4 * max(fine, products) * (4 + largest) + fine * (case.dim_v + 4)
    return relative, 4 * own.eta + 1e-30


def formulas(reading: Reading, left: Callable[[], bool]) -> Iterator[Formula]:
    """Formulas that give everything that was read, the simplest first; none where it is as declared or cannot be told."""
    if int(reading.wrong.sum()) < _FEWEST:
        return
    variants = options(reading.scene)
    steps = STEPS_OF[reading.output]
    single: list[dict[str, Option]] = [{}] + [{step: each} for step in steps for each in variants[step][1:]]
    places = covering_places(reading.scene, reading.wrong, reading.asked)
    yield from _cheapest(reading, single, [None], left)
    yield from _cheapest(reading, [each for each in single if not _reads_elsewhere(each)], places, left)
    plain = {step: [each for each in variants[step][1:]] for step in steps}
    double = (
        {a: x, b: y} for a, b in combinations(steps, 2) for x in plain[a] for y in plain[b]
    )
    yield from _cheapest(reading, islice(double, 4000), [None], left)


def _reads_elsewhere(changed: dict[str, Option]) -> bool:
    return any("operand" in step for step in changed)


def _cheapest(
    reading: Reading, tried: object, places: list[Place] | list[None] | list[Place | None], left: Callable[[], bool]
) -> Iterator[Formula]:
    """Those of a stage in the order of their cost, place by place."""
    given = list(tried)  # type: ignore[call-overload]
    for place in places:
        found = []
        for changed in given:
            if not left():
                break
            found += list(reading.fits(changed, place))
        yield from sorted(found, key=lambda each: each.cost)

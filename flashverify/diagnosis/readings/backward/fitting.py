"""Formulas held against what was read, pair by pair and within rounding."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import torch

from flashverify.diagnosis.readings.backward.dictionary import DECLARED
from flashverify.diagnosis.readings.backward.formulas import KEPT, OPERANDS, Formula, option_value
from flashverify.diagnosis.readings.backward.numbers import ONE, numbers_near
from flashverify.diagnosis.readings.backward.pair_places import expanded
from flashverify.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.backward.formulas import Columns
    from flashverify.diagnosis.readings.backward.numbers import Number
    from flashverify.diagnosis.readings.backward.pair_places import Place
    from flashverify.diagnosis.readings.backward.probe import Effect
    from flashverify.diagnosis.readings.backward.variants import Option

__all__ = ["Reading"]

_FEWEST = 6
"""Pairs that are wrong, from which on a formula can be told."""
_FEW = 150
"""Wrong pairs, and right ones, on which most formulas are refuted."""
_CERTAIN = 4.0
"""Times its rounding that a declared value is at least, for the ratio to it to be known."""
_ABSENT = 1e-3
"""Share of its declared value up to which a pair counts as missing."""
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
        relative: the share of its magnitudes by which rounding may move a pair.
        wrong: likewise: those that differ from what is declared by more than rounding.
        declared_values: `[B, Hq, Sq, Sk]`, what is declared of each pair.
        certain: bool: pairs whose declared value is far above rounding.
    """

    def __init__(self, effect: Effect, output: str) -> None:
        self.effect, self.output = effect, output
        self.scene, self.steps = effect.scene, effect.steps
        self.scene.memo.setdefault(KEPT, (self.steps, {}))
        at = self.scene.at
        rows, keys = at.row < at.rows, at.key < at.key_limit
        self.target = effect.read[output]
        self.asked = (rows[:, None, :, None] & keys[:, None, None, :]).expand(self.target.shape)
        self.relative, self.floor = _rounding(effect)
        declared = Formula(output=output, numbers=(ONE,) * (1 if output == "dv" else 3))
        columns = declared.columns(self.scene, self.steps)
        assert columns is not None
        ones = torch.ones(len(columns.values), dtype=torch.float64)
        values, sizes = self.seen(declared, columns)
        everywhere = torch.ones_like(self.asked)
        near = self._near(ones, [x.flatten() for x in values], [x.flatten() for x in sizes], everywhere)
        self.wrong = self.asked & ~near.view(self.asked.shape)
        self.declared_sizes: Tensor = torch.stack(sizes).sum(0)
        self.declared_values: Tensor = torch.stack(values).sum(0)
        self.certain = self.declared_values.abs() > _CERTAIN * (self.relative * self.declared_sizes + self.floor)
        self.few = self._chosen()

    @property
    def telling(self) -> bool:
        """Whether so many pairs are wrong that a formula can be told."""
        return int(self.wrong.sum()) >= _FEWEST

    @property
    def in_part(self) -> float:
        """The share of the wrong pairs that are neither 0 in place of what is declared nor hidden."""
        there = self.steps.see & (self.target.abs() > _ABSENT * self.declared_values.abs())
        return float(there[self.wrong].double().mean())

    def _chosen(self) -> Tensor:
        """Bool: some pairs, wrong ones and right ones, on which most formulas are refuted quickly."""
        order = torch.randperm(self.wrong.numel(), generator=torch.Generator().manual_seed(0))
        few = torch.zeros(self.wrong.numel(), dtype=torch.bool)
        for pairs in (self.wrong, self.asked & ~self.wrong):
            few[order[pairs.flatten()[order]][:_FEW]] = True
        return few.view(self.wrong.shape)

    def may_fit(self, formula: Formula, where: Tensor) -> bool:
        """Whether some of the pairs do not refute it."""
        few = where & self.few
        if not bool(few.any()):
            return False
        if OPERANDS.get(self.output) in formula.changed:
            return True
        columns = formula.columns(self.scene, self.steps, few)
        if columns is None:
            return False
        values, sizes = self.seen(formula, columns, few)
        fit = self._solved(values, sizes, few)
        return fit is not None and bool(self._near(fit.numbers, values, sizes, few).all())

    def shows(self, step: str, option: Option) -> bool:
        """Whether the step is another one than the declared one on this case."""
        found = option_value(step, option, self.scene, self.steps)
        if found is None:
            return False
        if step in OPERANDS.values():
            own = self.steps.k if step == "key operand" else self.steps.q
            return not torch.equal(found(own), own)
        declared = DECLARED[step].value(self.scene, self.steps)
        pairs = zip(found, declared, strict=True) if isinstance(found, tuple) else ((found, declared),)
        return any(x.dim() != y.dim() or not torch.equal(x, y.expand(x.shape)) for x, y in pairs)

    def seen(self, formula: Formula, columns: Columns, at: Tensor | None = None) -> tuple[list[Tensor], list[Tensor]]:
        """The terms as they stand in what was read, at the pairs `at`, or at all."""
        mark = self.effect.marks[self.output]
        if at is not None:
            mark = mark.expand(at.shape)[at]
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

    def _near(self, numbers: Tensor, values: list[Tensor], sizes: list[Tensor], where: Tensor) -> Tensor:
        """Bool: the pairs `where` at which a formula gives what was read, within rounding."""
        error, size = self.target[where], torch.zeros((), dtype=torch.float64)
        for number, value, magnitude in zip(numbers, values, sizes, strict=True):
            error, size = error - number * value, size + abs(number) * magnitude
        return error.abs() <= self.relative * size + self.floor

    def fits(self, changed: dict[str, Option], place: Place | None) -> Iterator[Formula]:
        """Formulas with these steps that give every pair of the place; of no place they give all pairs."""
        count = 1 if self.output == "dv" else 3
        yield from self.solutions(Formula(output=self.output, changed=changed, numbers=(ONE,) * count, place=place))

    def solutions(self, trial: Formula) -> Iterator[Formula]:
        """The formula with numbers that give every pair of its place; of no place all pairs."""
        changed, place, count = trial.changed, trial.place, len(trial.numbers)
        where = self.asked if place is None else self.asked & expanded(place, self.scene)
        if not self.may_fit(trial, where):
            return
        part = None if OPERANDS.get(self.output) in changed else where
        columns = trial.columns(self.scene, self.steps, part)
        if columns is None:
            return
        values, sizes = self.seen(trial, columns, part)
        if part is None:
            values, sizes = ([x[where] for x in seen] for seen in (values, sizes))
        fit = self._solved(values, sizes, where)
        if fit is None or not bool(self._near(fit.numbers, values, sizes, where).all()):
            return
        given = [float(x.abs().max()) > 0 for x in values]
        if not any(given):
            return
        read = [(float(n), float(e)) for n, e, there in zip(fit.numbers, fit.errors, given, strict=True) if there]
        common, error = min(read, key=lambda each: each[1])
        chosen: list[tuple[Number, ...]]
        if all(abs(number - common) <= e + error for number, e in read):
            chosen = [(each,) * count for each in numbers_near(common, error, self.scene)]
        else:
            parts = iter([numbers_near(number, e, self.scene)[:_NAMES] for number, e in read])
            chosen = list(product(*(next(parts) if there else [ONE] for there in given)))
            if (
                count > 1 and not given[2]
            ):  # delta and dLSE are often one number, of which a case without dLSE shows the first
                chosen += [(a, b, b) for a, b, c in chosen if b is not c]
        for numbers in chosen:
            exact = torch.tensor([each.of(self.scene) for each in numbers], dtype=torch.float64)
            if bool(self._near(exact, values, sizes, where).all()):
                found = replace(trial, numbers=numbers)
                if found.cost and not _without_effect(found):
                    yield found

    def _solved(self, values: list[Tensor], sizes: list[Tensor], where: Tensor) -> _Fit | None:
        """Least squares over the pairs, each in units of its rounding; errors are those that rounding allows."""
        size = torch.maximum(torch.stack(sizes).sum(0), self.declared_sizes[where])
        tolerance = self.relative * size + self.floor
        if not len(tolerance):
            return None
        left = torch.stack([x / tolerance for x in values], -1)
        right = self.target[where] / tolerance
        gram = left.mT @ left
        if not bool(torch.isfinite(gram).all()):  # another exponential overflows
            return None
        scale = gram.diagonal().clamp(min=1e-300).rsqrt()
        inverse = torch.linalg.pinv(scale.unsqueeze(-1) * gram * scale, rtol=1e-9, hermitian=True)
        numbers = scale * (inverse @ (scale * (left.mT @ right)))
        strongest = left.abs().amax(0).clamp(min=1e-300)
        spread = (inverse.diagonal().clamp(min=0) * scale**2).sqrt() * 8
        return _Fit(numbers, torch.maximum(spread, 1.0 / strongest).clamp(max=0.02) + 1e-6)


def _without_effect(formula: Formula) -> bool:
    """Whether a step that is exchanged stands with a coefficient of 0, so that it is none of what is said."""
    gone = [each.words == "0" for each in formula.numbers]
    if all(gone):
        return bool(formula.changed)
    if formula.output == "dv":
        return False
    return ("dp" in formula.changed and gone[0]) or ("rows" in formula.changed and gone[1] and gone[2])


def _rounding(effect: Effect) -> tuple[float, float]:
    """How far a pair may be off: a share of the magnitudes that it is summed from, and a distance."""
    case, s = effect.scene.case, effect.steps
    fine, own = FORMATS["fp32"].u, FORMATS[case.dtype]
    largest = (
        float(torch.maximum(s.z.abs().masked_fill(~s.see, 0.0).amax(), s.lse.abs().amax())) if s.z.numel() else 0.0
    )
    products = 2.0**-11 if case.precision == "tf32" else fine
    relative = 8 * max(own.u, products) + 4 * max(fine, products) * (4 + largest) + fine * (case.dim_v + 4)
    return relative, 4 * own.eta + 1e-30

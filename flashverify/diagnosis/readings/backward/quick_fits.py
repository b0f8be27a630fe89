"""Which of many formulas may give what was read: least squares on some of the pairs, of all formulas at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.backward.formulas import OPERANDS, Formula
from flashverify.diagnosis.readings.backward.numbers import ONE
from flashverify.diagnosis.readings.backward.pair_places import expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from flashverify.diagnosis.readings.backward.fitting import Reading
    from flashverify.diagnosis.readings.backward.pair_places import Place
    from flashverify.diagnosis.readings.backward.variants import Option

__all__ = ["may_fit"]

_AT_ONCE = 256
"""Formulas that are solved at once."""


def may_fit(
    reading: Reading, tried: Iterable[dict[str, Option]], place: Place | None, left: Callable[[], bool]
) -> list[dict[str, Option]]:
    """Those of `tried`, steps that are exchanged, that some pairs do not refute, in the same order.

    Args:
        reading: what was read.
        tried: the steps of each formula.
        place: where the formulas hold; None for everywhere.
        left: whether there is time.
    """
    where = reading.asked if place is None else reading.asked & expanded(place, reading.scene)
    few = where & reading.few
    if not bool(few.any()):
        return []
    operand, count = OPERANDS.get(reading.output), 1 if reading.output == "dv" else 3
    found: list[dict[str, Option]] = []
    waiting: list[tuple[int, dict[str, Option], Tensor, Tensor]] = []
    kept: list[tuple[int, dict[str, Option]]] = []
    picks: dict[str, Tensor] = {}

    def solve() -> None:
        if waiting:
            near = _near(reading, few, torch.stack([x[2] for x in waiting]), torch.stack([x[3] for x in waiting]))
            kept.extend((number, changed) for (number, changed, *_), fits in zip(waiting, near, strict=True) if fits)
            waiting.clear()

    for number, changed in enumerate(tried):
        if not left():
            break
        if operand in changed:
            kept.append((number, changed))
            continue
        trial = Formula(output=reading.output, changed=changed, numbers=(ONE,) * count, place=place)
        columns = trial.columns(reading.scene, reading.steps, few, picks)
        if columns is not None:
            values, sizes = reading.seen(trial, columns, few)
            waiting.append((number, changed, torch.stack(values, -1), torch.stack(sizes, -1)))
        if len(waiting) == _AT_ONCE:
            solve()
    solve()
    found += [changed for _, changed in sorted(kept, key=lambda each: each[0])]
    return found


def _near(reading: Reading, few: Tensor, values: Tensor, sizes: Tensor) -> list[bool]:
    """Whether each of N formulas, `[N, pairs, terms]` with magnitudes, gives the pairs `few` within rounding under the best numbers."""
    target = reading.target[few]
    tolerance = reading.relative * torch.maximum(sizes.sum(-1), reading.declared_sizes[few]) + reading.floor
    left, right = values / tolerance.unsqueeze(-1), target / tolerance
    gram = left.mT @ left
    known = torch.isfinite(gram).flatten(1).all(1)
    gram = torch.where(known.view(-1, 1, 1), gram, 0.0)
    scale = gram.diagonal(dim1=1, dim2=2).clamp(min=1e-300).rsqrt()
    inverse = torch.linalg.pinv(scale.unsqueeze(2) * gram * scale.unsqueeze(1), rtol=1e-9, hermitian=True)
    ends = (left.nan_to_num(0.0, 0.0, 0.0).mT @ right.unsqueeze(-1)).squeeze(-1)
    numbers = scale * (inverse @ (scale * ends).unsqueeze(-1)).squeeze(-1)
    error = (target - (values @ numbers.unsqueeze(-1)).squeeze(-1)).abs()
    allowed = reading.relative * (sizes @ numbers.abs().unsqueeze(-1)).squeeze(-1) + reading.floor
    return [bool(each) for each in (error <= allowed).all(1) & known]

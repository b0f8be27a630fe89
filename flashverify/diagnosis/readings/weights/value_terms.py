"""Terms of logits that are wrong by their own value: products of one sign or size that count otherwise than declared."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.readings.weights.models import deviation_of
from flashverify.diagnosis.readings.weights.term import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.readings.weights.effect import Effect

    Where = Callable[[Tensor, float], Tensor]
    """Of scaled products and a size, which of them."""
    Size = Callable[[Case], float]
    Change = Callable[[Tensor, Tensor, float, float], Tensor]
    """Of scaled products, what is declared of them, a size and the cap, what they are instead."""

__all__ = ["roundest", "value_terms"]

_SIDES: tuple[tuple[str, Where], ...] = (
    ("below -{}", lambda x, size: x < -size),
    ("above {}", lambda x, size: x > size),
    ("beyond {} on both sides", lambda x, size: x.abs() > size),
    ("within {} on both sides", lambda x, size: x.abs() <= size),
)
_CAPS = ((0.25, "a quarter of the cap"), (0.5, "half the cap"), (1.0, "the cap"), (2.0, "twice the cap"))
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 80.0, 88.0, 100.0, 127.0)


def value_terms(effect: Effect) -> Iterator[Term]:
    """Products of one sign or size, capped where the case has a cap, with the other sign, without a cap, clamped or as 0."""
    capped = bool(effect.scene.case.logits.softcap)
    sides: list[tuple[str, Where, Size]] = [
        ("below 0", lambda x, _size: x < 0, _nothing),
        ("above 0", lambda x, _size: x > 0, _nothing),
    ]
    numbers = _CAPS if capped else tuple((size, f"{size:g}") for size in _SIZES)
    for number, of in numbers:
        sides += [(words.format(of), where, partial(_size, number=number)) for words, where in _SIDES]
    for (words, where), number in _learned(effect):
        of = f"{number:g} times the cap" if capped else f"{number:g}"
        sides.append((words.format(of), where, partial(_size, number=number)))
    for words, where, size in sides:
        changes: list[tuple[str, Change]] = [
            ("count with the other sign", lambda x, z, s, c: -z),
            ("count as 0", lambda x, z, s, c: z * 0),
        ]
        if capped:
            changes += [
                ("are not capped", lambda x, z, s, c: x),
                ("are clamped at the cap", lambda x, z, s, c: x.clamp(-c, c)),
            ]
        elif size is not _nothing:
            changes.append(("are clamped there", lambda x, z, s, c: x.clamp(-s, s)))
        for how, change in changes:
            yield Term(
                words=f"scaled products {words} {how}",
                kind="exchange",
                of=partial(_changed, where=where, size=size, change=change),
            )


def _nothing(case: Case) -> float:  # noqa: ARG001
    return 0.0


def _size(case: Case, number: float) -> float:
    """A size in units of the cap, where there is one."""
    return number * (case.logits.softcap or 1.0)


def _learned(effect: Effect) -> Iterator[tuple[tuple[str, Where], float]]:
    """Sides of which one holds all pairs that are off and the other none that is read, up to a number that lies between."""
    deviation, (x, _) = deviation_of(effect), _products(effect)
    x = x.expand_as(deviation.wrong) / _size(effect.scene.case, 1.0)
    wrong, right = x[deviation.wrong], x[deviation.read & ~deviation.wrong]
    if not wrong.numel() or not right.numel():
        return
    for side, of, inside in (
        (_SIDES[0], lambda v: -v, False),
        (_SIDES[1], lambda v: v, False),
        (_SIDES[2], torch.abs, False),
        (_SIDES[3], torch.abs, True),
    ):
        w, r = of(wrong), of(right)
        near = r[r > w.max()] if inside else r[r < w.min()]
        if not near.numel():
            continue
        low, high = (float(w.max()), float(near.min())) if inside else (float(near.max()), float(w.min()))
        if 0 < low < high:
            yield side, roundest(low, high)


def roundest(low: float, high: float) -> float:
    """The number with the fewest digits between two positive ones."""
    for digits in range(1, 7):
        unit = 10.0 ** (math.floor(math.log10(high)) + 1 - digits)
        found = math.floor(high / unit) * unit
        if found > low:
            return float(f"{found:.{digits}g}")
    return (low + high) / 2


def _products(effect: Effect) -> tuple[Tensor, Tensor]:
    """The scaled products, and what is declared of them."""
    memo = effect.scene.memo
    if "products" not in memo:
        scaled = products(effect.scene.inputs)
        memo["products"] = scaled, modified(scaled.clone(), effect.scene.inputs, ())
    found: tuple[Tensor, Tensor] = memo["products"]
    return found


def _changed(effect: Effect, where: Where, size: Size, change: Change) -> Tensor:
    scaled, declared = _products(effect)
    case = effect.scene.case
    number, cap = size(case), case.logits.softcap or 0.0
    return torch.where(where(scaled, number), change(scaled, declared, number, cap) - declared, 0.0)

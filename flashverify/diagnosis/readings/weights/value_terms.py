"""Terms of logits that are wrong by their own value: products of one sign or size that count otherwise than declared."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from flashverify.checks.passes.logits import modified, products
from flashverify.diagnosis.readings.weights.term import Term

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.readings.weights.effect import Effect

    Where = Callable[[Tensor, float], Tensor]
    """Of scaled products and a size, which of them."""

__all__ = ["value_terms"]

_SIDES: tuple[tuple[str, Where], ...] = (
    ("below -{}", lambda x, size: x < -size),
    ("above {}", lambda x, size: x > size),
    ("beyond {} on both sides", lambda x, size: x.abs() > size),
    ("within {} on both sides", lambda x, size: x.abs() <= size),
)
_CAPS = ((0.25, "a quarter of the cap"), (0.5, "half the cap"), (1.0, "the cap"), (2.0, "twice the cap"))
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 80.0, 88.0, 100.0, 127.0)


def value_terms(case: Case) -> Iterator[Term]:
    """Products of one sign or size, capped where the case has a cap, with the other sign, without a cap, clamped or as 0."""
    cap = case.logits.softcap
    sides: list[tuple[str, Where, float]] = [
        ("below 0", lambda x, _size: x < 0, 0.0),
        ("above 0", lambda x, _size: x > 0, 0.0),
    ]
    sizes = [(share * cap, words) for share, words in _CAPS] if cap else [(size, f"{size:g}") for size in _SIZES]
    sides += [(words.format(of), where, size) for size, of in sizes for words, where in _SIDES]
    for words, where, size in sides:
        changes: list[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = [
            ("count with the other sign", lambda x, z: -z),
            ("count as 0", lambda x, z: z * 0),
        ]
        if cap:
            changes += [
                ("are not capped", lambda x, z: x),
                ("are clamped at the cap", lambda x, z, c=cap: x.clamp(-c, c)),  # type: ignore[misc]
            ]
        elif size:
            changes.append(("are clamped there", lambda x, z, s=size: x.clamp(-s, s)))  # type: ignore[misc]
        for how, change in changes:
            yield Term(
                words=f"scaled products {words} {how}",
                kind="exchange",
                of=partial(_changed, where=where, size=size, change=change),
            )


def _changed(effect: Effect, where: Where, size: float, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    memo = effect.scene.memo
    if "products" not in memo:
        scaled = products(effect.scene.inputs)
        memo["products"] = scaled, modified(scaled.clone(), effect.scene.inputs, ())
    scaled, declared = memo["products"]
    return torch.where(where(scaled, size), change(scaled, declared) - declared, 0.0)

"""A term that logits are made of, or could be, and factors of it by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.diagnosis.readings.weights.effect import Effect

__all__ = ["BIASES", "COEFFICIENTS", "HEADS", "Term", "bias_of", "signed"]


COEFFICIENTS: tuple[tuple[str, Callable[[Case], float]], ...] = (
    ("twice", lambda _: 2.0),
    ("half", lambda _: 0.5),
    ("minus", lambda _: -1.0),
    ("ln 2 times", lambda _: math.log(2)),
    ("log2(e) times", lambda _: 1 / math.log(2)),
    ("the scale times", lambda case: case.softmax_scale),
    ("1 / scale times", lambda case: 1 / case.softmax_scale if case.softmax_scale else math.nan),
    ("scale * log2(e) times", lambda case: case.softmax_scale / math.log(2)),
    ("scale * ln 2 times", lambda case: case.softmax_scale * math.log(2)),
    ("1 / sqrt(D) times", lambda case: case.dim_qk**-0.5),
    ("sqrt(D) times", lambda case: case.dim_qk**0.5),
)
"""Factors by name, as functions of the case."""


HEADS: tuple[tuple[str, Callable[[Effect, Tensor], Tensor]], ...] = (
    ("the first query head", lambda e, h: h * 0),
    ("the next query head", lambda e, h: h + 1),
    ("the query head before", lambda e, h: h - 1),
    ("query head h // group", lambda e, h: h // e.scene.group),
    ("query head h % group", lambda e, h: h % e.scene.group),
    ("the first query head of the group", lambda e, h: h // e.scene.group * e.scene.group),
    ("the last query head of the group", lambda e, h: h // e.scene.group * e.scene.group + e.scene.group - 1),
    ("the query head as far from the last one", lambda e, h: len(h) - 1 - h),
    ("query head h modulo the number of kv heads", lambda e, h: h % e.scene.case.heads_kv),
    (
        "the query head that the order (member, kv head) gives",
        lambda e, h: h % e.scene.case.heads_kv * e.scene.group + h // e.scene.case.heads_kv,
    ),
    (
        "the query head that the order (kv head, member) gives",
        lambda e, h: h % e.scene.group * e.scene.case.heads_kv + h // e.scene.group,
    ),
    ("query head h // 2", lambda e, h: h // 2),
    ("the first query head of its pair", lambda e, h: h // 2 * 2),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """Something that may be added to the declared logits.

    Attributes:
        words: what it is; of a declared term its name, of an exchange what the logits are instead.
        kind: `declared` for a part of the declared logits, `extra` for none, `exchange` for one that is added once or not at all.
        of: float64, broadcasts to `[B, Hq, Sq, Sk]`; None on a case that has not what it is about.
        added: what it means that so many times the term is added to the declared logits, in words; None of a term for which that says it.
    """

    words: str
    kind: str
    of: Callable[[Effect], Tensor | None]
    added: Callable[[str], str] | None = None


BIASES = (("bias", "the bias"), ("slopes", "ALiBi"), ("relative_bias", "the relative bias"))


def bias_of(effect: Effect, name: str) -> Tensor | None:
    """One of the biases; they stand in the order of `BIASES`."""
    present = [each for each, _ in BIASES if getattr(effect.scene.problem, each) is not None]
    return effect.scene.inputs.biases[present.index(name)] if name in present else None


def signed(effect: Effect) -> Tensor:
    """Key minus position of the row, `[B, 1, Sq, Sk]`."""
    at = effect.scene.at
    return (at.key[:, None, :] - (at.row + at.shift)[:, :, None])[:, None].double()

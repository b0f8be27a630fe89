"""Row sums that a number in the code limits: learned from the rows whose weights are divided by something else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from flashverify.diagnosis.readings.weights.masses import sum_of
from flashverify.diagnosis.readings.weights.models import GONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

__all__ = ["limited_sum"]

_FEWEST = 4
"""Rows of each kind that tell."""
_NEAR = 1e-3
"""Distance of logarithms at which they are the same."""

_UNITS: tuple[tuple[str, Callable[[Any, Tensor], Tensor]], ...] = (
    ("times the row's largest weight", lambda row, own: own - row.logits.amax(-1)),
    ("", lambda row, own: own),
)
"""In what a row sum may be limited, in words, and its logarithm in that unit."""


def limited_sum(rows: Sequence[Any]) -> str:
    """In words, `is at least 1.5 times the row's largest weight`; empty where no such limit makes the row sums of all cases.

    Args:
        rows: cases with an `effect`, its `logits` and the `shift` of its rows.
    """
    for unit, of in _UNITS:
        own, got, near = [], [], []
        for row in rows:
            total = sum_of(row.effect, row.logits)
            asked = ~row.effect.open_rows & (row.shift > GONE) & torch.isfinite(total)
            value = of(row, total)
            own.append(value[asked])
            got.append((value - total - row.shift)[asked])
            near.append((row.effect.relative.squeeze(-1) + 1e-6 * (1 + total.abs())).expand_as(total)[asked])
        x, y, tolerance = torch.cat(own), torch.cat(got), torch.cat(near)
        wrong = (x - y).abs() > tolerance
        if min(int(wrong.sum()), int((~wrong).sum())) < _FEWEST:
            continue
        limit = float(y[wrong].median())
        if not bool(((y[wrong] - limit).abs() <= tolerance[wrong] + _NEAR).all()):
            continue
        for words, inside in (("at least", x >= limit - _NEAR), ("at most", x <= limit + _NEAR)):
            if bool(inside[~wrong].all()) and not bool(inside[wrong].any()):
                return f"is {words} {_number(limit, unit)}"
    return ""


def _number(limit: float, unit: str) -> str:
    """The limit, whose logarithm is given; beyond what a reader sees at a glance as a power of e."""
    value = f"{math.exp(limit):.4g}" if abs(limit) < 14 else f"exp({limit:.4g})"
    return f"{value} {unit}".strip()

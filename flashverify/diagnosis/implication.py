"""Which conditions of a diagnosis follow from others. Importing this loads no torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.diagnosis.conditions import parse
from flashverify.diagnosis.features import OF_VALUES
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.diagnosis.conditions import Condition

__all__ = ["implied"]

_FRACTIONS = frozenset({*OF_VALUES, "row_max"})
"""Features that are no whole numbers."""

Range = tuple[float, bool, float, bool]
"""Least number, whether it belongs to the range, largest number, whether it belongs to the range."""


def implied(conclusions: Iterable[str], conditions: Iterable[str]) -> bool:
    """Whether each conclusion holds wherever all `conditions` do: it is one of them, or a wider range of the same number than one of them.

    Args:
        conclusions: texts of conditions.
        conditions: likewise.
    """
    known = tuple(conditions)
    return all(text in known or any(_follows(text, other) for other in known) for text in conclusions)


def _follows(text: str, other: str) -> bool:
    try:
        conclusion, condition = parse(text), parse(other)
    except UsageError:  # of a stored run whose version said it in other words
        return False
    about = {(c.feature, c.modulus, c.tile) for c in (conclusion, condition)}
    if len(about) > 1 or (inner := _range(condition)) is None:
        return False
    if conclusion.comparison == "!=" and not isinstance(conclusion.value, str):
        return not _inside(conclusion.value, inner)
    outer = _range(conclusion)
    return outer is not None and _within(inner, outer)


def _range(condition: Condition) -> Range | None:
    """The numbers for which a condition holds; None where they are no range of numbers. Sizes are whole numbers."""
    value, comparison = condition.value, condition.comparison
    if isinstance(value, str) or comparison == "!=":
        return None
    whole = isinstance(value, int) and condition.feature not in _FRACTIONS
    if whole and comparison in ("<", ">"):
        value, comparison = (value - 1, "<=") if comparison == "<" else (value + 1, ">=")
    closed = comparison in ("<=", ">=", "==")
    low = (value, closed) if comparison in (">", ">=", "==") else (-math.inf, False)
    high = (value, closed) if comparison in ("<", "<=", "==") else (math.inf, False)
    return (*low, *high)


def _inside(value: float, numbers: Range) -> bool:
    low, from_low, high, to_high = numbers
    return (low < value or (from_low and low == value)) and (value < high or (to_high and value == high))


def _within(inner: Range, outer: Range) -> bool:
    """Whether a range is a part of another one."""
    above = inner[0] > outer[0] or (inner[0] == outer[0] and inner[1] <= outer[1])
    below = inner[2] < outer[2] or (inner[2] == outer[2] and inner[3] <= outer[3])
    return above and below

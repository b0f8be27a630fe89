"""Text forms of the values of an axis: integers, floats that survive bit for bit, yes and no, flags."""

from __future__ import annotations

import math
from dataclasses import MISSING, astuple, fields
from typing import Any

__all__ = [
    "flags",
    "float_text",
    "ints",
    "ints_text",
    "parse_float",
    "pattern_text",
    "yes_or_no",
    "yes_or_no_text",
]


def parse_float(text: str) -> float:
    """A decimal or a hex float.

    Raises:
        ValueError: the text is no number, or a finite one beyond float64.
    """
    value = float.fromhex(text) if "0x" in text else float(text)
    if text.lower().lstrip("+-") not in ("inf", "infinity", "nan") and not math.isfinite(value):
        raise ValueError("beyond the range of a float64")
    return value


def float_text(value: float) -> str:
    """The shortest decimal of six digits where it is exact, otherwise a hex float."""
    return short if float(short := f"{value:g}") == value else float(value).hex()


def yes_or_no(text: str) -> bool:
    """A bool; raises a ValueError for any other word."""
    if text not in ("yes", "no"):
        raise ValueError("yes or no")
    return text == "yes"


def yes_or_no_text(value: bool) -> str:
    """`yes` or `no`."""
    return "yes" if value else "no"


def ints(text: str) -> tuple[int, ...]:
    """Integers between commas; none for the empty text."""
    return tuple(int(part) for part in text.split(",")) if text else ()


def ints_text(values: tuple[int, ...]) -> str:
    """Integers between commas."""
    return ",".join(map(str, values))


def flags(values: list[int], most: int) -> list[bool]:
    """Bools of at most `most` numbers 0 or 1; raises a ValueError for others."""
    if len(values) > most or not set(values) <= {0, 1}:
        raise ValueError(f"after the seed at most {most} of 0 or 1")
    return [bool(value) for value in values]


def pattern_text(pattern: Any) -> str:
    """The fields of a dataclass of integers and flags in their order; flags at the end that are off are left out."""
    values = [int(value) for value in astuple(pattern)]
    least = sum(1 for entry in fields(pattern) if entry.default is MISSING)
    while len(values) > least and not values[-1]:
        values.pop()
    return ints_text(tuple(values))

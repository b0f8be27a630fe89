"""Which masks and modifiers the judged cases had together, and which cannot stand together."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from flashverify.case.masks.mask import PARTS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    Trait = tuple[str, str]

__all__ = ["PAIRED", "pairs_of", "pairs_text"]

PAIRED = ("mask", "modifier")
"""The axes whose values are paired."""


def pairs_of(traits: Iterable[Trait]) -> tuple[tuple[str, str], ...]:
    """Every two of the masks and modifiers of a case, in alphabetical order."""
    return _pairs(tuple([value for axis, value in traits if axis in PAIRED]))


@lru_cache(maxsize=4096)
def _pairs(values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(combinations(sorted(set(values)), 2))


def pairs_text(values: Iterable[str], met: Counter[tuple[str, str]]) -> tuple[str, list[str], list[str]]:
    """How many pairs of the values that were seen met, which could have met and did not, and which cannot.

    Args:
        values: masks and modifiers that cases had.
        met: cases by the pairs that they had.
    """
    wanted = list(combinations(sorted(values), 2))
    never = [pair for pair in wanted if not met[pair]]
    apart = [pair for pair in never if _excluded(*pair)]
    open_ = [pair for pair in never if pair not in apart]
    reachable = len(wanted) - len(apart)
    return (
        f"{reachable - len(open_)} of {reachable}",
        [" with ".join(p) for p in open_],
        [" with ".join(p) for p in apart],
    )


def _excluded(one: str, other: str) -> bool:
    """Whether the definition of a case keeps the two apart."""
    first, second = (_part(name) for name in (one, other))
    if first.startswith("causal") and second.startswith("causal"):
        return True
    names = {first.split()[0], second.split()[0]}
    return any(part.name in names and names.intersection(part.excludes) for part in PARTS)


def _part(value: str) -> str:
    """The name of a part as the registry has it; the alignment of causal stays behind it."""
    return value if value.startswith("causal") else value.replace(" ", "_")

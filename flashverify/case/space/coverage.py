"""Which pairs of traits the cases that were drawn cover, and how much a further case would add."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from flashverify.case.space.traits import traits_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case

__all__ = ["Coverage"]


class Coverage:
    """Counts of the pairs of traits of the cases that were kept."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[tuple[str, str], tuple[str, str]]] = Counter()

    def add(self, case: Case) -> None:
        """Count a case."""
        self._counts.update(combinations(sorted(traits_of(case)), 2))

    def gain(self, case: Case) -> float:
        """How little its pairs are covered: the mean over them of 1 / (1 + cases so far)."""
        pairs = list(combinations(sorted(traits_of(case)), 2))
        return sum(1 / (1 + self._counts[pair]) for pair in pairs) / max(len(pairs), 1)

    def without_least(self, cases: Sequence[Case], number: int) -> list[Case]:
        """The cases in their order without the `number` of them that add least; the first one, the simplest, stays."""
        least = sorted(range(1, len(cases)), key=lambda place: self.gain(cases[place]))[:number]
        return [case for place, case in enumerate(cases) if place not in least]

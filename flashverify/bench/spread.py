"""Between which values a median lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DOUBT", "Spread"]

DOUBT = 0.001
"""Probability that a spread does not hold the median that it is about."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and two values between which it lies: the median of a distribution of any form is between them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of values, one a round; of fewer than 11 the whole range, which is less sure.

        Args:
            values: at least one.
        """
        ordered = sorted(values)
        count = len(ordered)
        middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        outside, left_out = 0.0, 0
        for number in range((count - 1) // 2):
            outside += 2 * math.comb(count, number) / 2**count
            if outside > DOUBT:
                break
            left_out = number
        return cls(middle, ordered[left_out], ordered[count - 1 - left_out])

    def over(self, other: Spread) -> Spread:
        """This median by another one of its own rounds; both positive."""
        return Spread(self.median / other.median, self.low / other.high, self.high / other.low)

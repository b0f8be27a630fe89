"""The bias of an output: the mean, over the cases, of the mean signed ratio of a case.

Rounding to nearest has none; a product that truncates, a sum in a narrow type or a missing term has one, long before any element leaves its
bound. It is reported with an interval and is never a failure.

The interval is an asymptotic confidence sequence: it holds at every length of the run at once, so that a run may be looked at, resumed and
compared at any time (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: Time-uniform central limit theory and asymptotic confidence sequences,
Annals of Statistics 52, 2024, equation 4: the mixture boundary).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ALPHA", "Bias"]

ALPHA = 1e-3
"""Probability that the interval ever misses the mean."""
_SHARPEST = 1000
"""Number of cases at which the interval is narrowest."""
_RHO2 = (-2 * math.log(ALPHA) + math.log(-2 * math.log(ALPHA)) + 1) / _SHARPEST


@dataclass(slots=True)
class Bias:
    """A running mean of values in [-1, 1]."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Bias:
        """That of many values."""
        return cls(len(values), float(values.sum()), float((values * values).sum()))

    def add(self, value: float) -> None:
        """Add the mean signed ratio of one case."""
        self.count += 1
        self.total += value
        self.squares += value * value

    def extend(self, later: Bias) -> None:
        """Add those of other cases."""
        self.count += later.count
        self.total += later.total
        self.squares += later.squares

    @property
    def mean(self) -> float | None:
        """The mean, or None of nothing."""
        return self.total / self.count if self.count else None

    @property
    def radius(self) -> float | None:
        """Half the width of the interval around the mean; None below two values."""
        if self.count < 2:
            return None
        n = self.count
        variance = max(0.0, self.squares / n - (self.total / n) ** 2) * n / (n - 1)
        grown = n * _RHO2 + 1
        return math.sqrt(variance * 2 * grown / (n * n * _RHO2) * math.log(math.sqrt(grown) / ALPHA))

    @property
    def significant(self) -> bool:
        """Whether 0 lies outside the interval."""
        mean, radius = self.mean, self.radius
        return mean is not None and radius is not None and abs(mean) > radius

    def text(self) -> str:
        """`mean ± radius`; with an exclamation mark where it is significant."""
        if self.mean is None:
            return "–"
        if self.radius is None:
            return f"{self.mean:+.1e}"
        return f"{self.mean:+.1e} ± {self.radius:.0e}" + (" !" if self.significant else "")

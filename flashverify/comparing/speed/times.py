"""Times of both sides in rounds, and whether they differ by more than one side differs from itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.bench.records import Workload

__all__ = ["DOUBT", "Speed", "Speeds", "Spread"]

DOUBT = 0.001
"""Probability that a spread does not hold the median that it is about."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of a ratio, and two values between which it lies: the median of a distribution of any form is between them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Spread:
        """The spread of ratios, one a round; of fewer than 11 the whole range, which is less sure.

        Args:
            ratios: at least one.
        """
        ordered = sorted(ratios)
        count = len(ordered)
        middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        outside, left_out = 0.0, 0
        for number in range((count - 1) // 2):
            outside += 2 * math.comb(count, number) / 2**count
            if outside > DOUBT:
                break
            left_out = number
        return cls(middle, ordered[left_out], ordered[count - 1 - left_out])


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One shape and pass.

    Attributes:
        workload: what was timed.
        before: times of the earlier side, ms, one a round.
        after: of the later side, in the same rounds.
        again: of the earlier side in a second process, in the same rounds: what no change looks like.
        memory: largest memory that a call takes beyond what it was handed, before and after, bytes; None on a CPU.
        reason: why there are no times.
        newly: whether the later side alone could not be timed.
    """

    workload: Workload
    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    memory: tuple[int, int] | None = None
    reason: str = ""
    newly: bool = False

    @property
    def ratio(self) -> Spread:
        """Time after by time before, round by round."""
        return Spread.of([b / a for a, b in zip(self.before, self.after, strict=True)])

    @property
    def noise(self) -> Spread:
        """Time of the earlier side by its own in another process."""
        return Spread.of([b / a for a, b in zip(self.before, self.again, strict=True)])

    @property
    def memory_ratio(self) -> float | None:
        """Memory after by memory before; None where it was not measured, or the earlier side takes none."""
        return self.memory[1] / self.memory[0] if self.memory and self.memory[0] else None


@dataclass(frozen=True, slots=True)
class Speeds:
    """Every shape.

    Attributes:
        evidence: what was timed on: `cpu`, or the GPU's name and architecture.
        rows: of the shapes.
        reason: why nothing, or not everything, was timed.
        died: whether a process died over it.
    """

    evidence: str = ""
    rows: tuple[Speed, ...] = ()
    reason: str = ""
    died: bool = False

    @property
    def timed(self) -> tuple[Speed, ...]:
        """The rows that have times."""
        return tuple(row for row in self.rows if not row.reason)

    def noise_of(self, row: Speed) -> float:
        """How far one side is from itself at most, as a factor of at least 1, over the timed shapes of the same length."""
        spreads = [each.noise for each in self.timed if each.workload.seq_k == row.workload.seq_k]
        return max([1.0, *(end for spread in spreads for end in (spread.high, 1 / spread.low))])

    def change_of(self, row: Speed) -> Literal["slower", "faster", "none"]:
        """Whether the spread of a ratio lies wholly beyond the noise, in either direction."""
        noise, ratio = self.noise_of(row), row.ratio
        return "slower" if ratio.low > noise else "faster" if ratio.high < 1 / noise else "none"

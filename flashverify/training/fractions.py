"""By which common fraction an output is too large, with a confidence that holds at every step (docs/training.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.checks.statistics.evidence import Errors

__all__ = ["ALPHA", "Fraction", "limit_at"]

ALPHA = 1e-9
"""Probability that the interval of a right subject ever leaves 0, over all steps, layers and outputs."""


def limit_at(step: int, questions: int) -> float:
    """The limit of the mean of `step + 1` scores times the root of their number: alpha is spread over steps as 1 / (t (t + 1)).

    Args:
        step: number of the step, from 0.
        questions: outputs times layers.
    """
    return math.sqrt(2 * math.log(2 * questions * (step + 1) * (step + 2) / ALPHA))


@dataclass(slots=True)
class Fraction:
    """What the steps so far say of one output of one layer.

    A step adds its lean along the exact values over the root of the sum of squares of its groups' leans: a score that is
    sub-Gaussian given the past where the groups' errors have even signs. What may share a direction enters as room.

    Attributes:
        questions: outputs times layers that are asked.
        steps: that were added.
        score: sum of the scores.
        room: of what may share a direction, in scores.
        size: what a fraction of 1 adds to the score.
        sure: the narrowest interval so far that the bounds of the elements allow.
    """

    questions: int
    steps: int = 0
    score: float = 0.0
    room: float = 0.0
    size: float = 0.0
    sure: tuple[float, float] = (-math.inf, math.inf)

    def add_errors(self, errors: Errors) -> None:
        """Adds a step of a 16-bit output whose errors were rounded to nearest, but for what may share a direction."""
        along = errors.weight * errors.value
        lean = (along * errors.error).sum(-1)
        norm = float(lean.square().sum().sqrt())
        if norm > 0:
            self.score += float(lean.sum()) / norm
            self.room += float((along.abs() * errors.directed).sum()) / norm
            self.size += float((along * errors.value).sum()) / norm
            self.steps += 1

    def add_bounds(self, error: torch.Tensor, value: torch.Tensor, bound: torch.Tensor) -> None:
        """Adds a step of an output of which only the bounds of its elements are known; they may all share a direction."""
        import torch

        known = torch.isfinite(bound)
        size = float(torch.where(known, value.square(), 0.0).sum())
        if size == 0:
            return
        lean = float(torch.where(known, value * error, 0.0).sum()) / size
        room = float(torch.where(known, value.abs() * bound, 0.0).sum()) / size
        # Each step allows an interval; the fractions that every step allows are their common part, or the last one where there is none.
        low, high = max(self.sure[0], lean - room), min(self.sure[1], lean + room)
        self.sure = (low, high) if low <= high else (lean - room, lean + room)

    def interval(self) -> tuple[float, float]:
        """The fractions that the steps so far allow; infinite where they say nothing."""
        if self.size <= 0:
            return self.sure
        centre = self.score / self.size
        half = (self.room + limit_at(self.steps - 1, self.questions) * math.sqrt(self.steps)) / self.size
        return centre - half, centre + half

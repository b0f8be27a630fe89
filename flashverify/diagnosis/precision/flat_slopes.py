"""A derivative of a softcap that a model rounds, where one that is left out explains the errors as well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flashverify.diagnosis.precision.steps import Steps

__all__ = ["without_slope"]


def without_slope(change: Callable[[Steps], Steps], runs: Iterable[tuple[Steps, Callable[[Steps], float]]]) -> bool:
    """Whether a derivative of 1 explains as much on every run as the rounded one of a model: near 1 both look alike.

    Args:
        change: the model.
        runs: the declared steps of each run, and the share of the squared error that steps explain.
    """
    for steps, explained in runs:
        changed = change(steps)
        if changed.slope is steps.slope or explained(replace(steps, slope=torch.ones_like)) < explained(changed):
            return False
    return True

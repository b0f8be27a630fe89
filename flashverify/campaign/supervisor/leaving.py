"""When a worker leaves its batch: a finding waits to be explained, and every worker judges cases."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from flashverify.campaign.supervisor.budget import Budget, Explaining
    from flashverify.campaign.supervisor.explainer import Explainer

__all__ = ["Leaving"]

_LAST = 0.5
"""Share of the budget, at the end."""
_EVERY = 5.0
"""Seconds between two batches that are left: whoever goes on with one draws its first cases again."""


class Leaving:
    """Asked after each case of a batch. A batch of slow cases would otherwise take all the time that findings have.

    It is due in the last half of the time budget: what was seen until then says which failures come together. Without one there is no
    hurry.

    Args:
        explainer: of the campaign.
        explaining: its time.
        budget: of the campaign.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        explainer: Explainer,
        explaining: Explaining,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._explainer, self._explaining, self._budget, self._clock = explainer, explaining, budget, clock
        self._last = -math.inf

    def due(self, *, beside: bool) -> bool:
        """Whether the worker that judged a case leaves its batch to explain; `beside` says whether that is done while cases wait."""
        left, seconds = self._budget.left, self._budget.seconds
        if left is None or seconds is None or left > _LAST * seconds:
            return False
        if not beside or self._explaining.active or self._clock() - self._last < _EVERY:
            return False
        if not self._explainer.waits(searching=True):
            return False
        self._last = self._clock()
        return True

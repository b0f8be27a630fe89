"""The time of a campaign, and the share of it that explaining findings may take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Budget", "Explaining"]

_GRACE_SHARE = 0.1
_LEAST_SLICE = 1.0
_LATER = 0.4
"""Share of the time of a campaign before which nothing is looked at again."""


class Budget:
    """The wall clock of one call.

    Args:
        seconds: time budget of this call; None is none.
        grace: seconds after it within which what has begun may end; a tenth of the budget at most.
        before: seconds of the calls that this one resumes.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        seconds: float | None,
        grace: float,
        *,
        before: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds, self._before, self._clock = seconds, before, clock
        self._grace = grace if seconds is None else min(grace, _GRACE_SHARE * seconds)
        self._begun = clock()

    @property
    def elapsed(self) -> float:
        """Seconds so far, those of the resumed calls included."""
        return self._before + self.elapsed_here

    @property
    def elapsed_here(self) -> float:
        """Seconds of this call so far."""
        return self._clock() - self._begun

    @property
    def left(self) -> float | None:
        """Seconds until the budget is met, None without one."""
        return None if self.seconds is None else max(0.0, self.seconds - self.elapsed_here)

    @property
    def until_the_end(self) -> float | None:
        """Seconds until everything is stopped, the grace included; None without a budget."""
        if self.seconds is None:
            return None
        return max(0.0, self.seconds + self._grace - self.elapsed_here)


class Explaining:
    """How long findings may be minimised, verified and diagnosed, in seconds of workers.

    With a time budget that is `share` of it. Without one it is `least` or `share` of all the time that the campaign takes, whichever
    is more, so that a failing run stays comparable with a passing one.

    Args:
        budget: of the campaign.
        workers: processes.
        share: of the time.
        least: seconds of workers, where there is no time budget; None is no limit.
        clock: seconds, monotonic.
        waits: share of their time in which workers have no processor, though they could run.
    """

    def __init__(
        self,
        budget: Budget,
        workers: int,
        *,
        share: float,
        least: float | None,
        clock: Callable[[], float] = time.monotonic,
        waits: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._budget, self._workers, self._share, self._least, self._clock = budget, workers, share, least, clock
        self._waits = waits
        self._active: dict[int, tuple[float, float]] = {}  # by worker: when it began, and what it was given
        self._spent = self._judging = 0.0
        self.ended = 0

    @property
    def active(self) -> int:
        """Findings that are being explained now."""
        return len(self._active)

    @property
    def spent(self) -> float:
        """Seconds of workers that were spent, those of tasks that are not done yet among them."""
        return self._spent + sum(self._clock() - begun for begun, _ in self._active.values())

    def judged(self, seconds: float) -> None:
        """A case took so long."""
        self._judging += seconds

    def begin(self, worker: int, seconds: float | None) -> None:
        """A worker was given a finding and so many seconds for it."""
        self._active[worker] = (self._clock(), seconds or 0.0)

    def end(self, worker: int) -> None:
        """The worker is done with it, or lost; nothing where it explained nothing."""
        if worker in self._active:
            begun, _ = self._active.pop(worker)
            self._spent += self._clock() - begun
            self.ended += 1

    @property
    def _allowance(self) -> float | None:
        if self._budget.seconds is not None:
            return self._share * self._budget.seconds * self._workers
        if self._least is None:
            return None
        return max(self._least, self._share / (1 - self._share) * self._judging)

    @property
    def left(self) -> float | None:
        """Seconds until the share is used up by those that are being explained, on the wall clock; None without a limit."""
        if (allowance := self._allowance) is None:
            return None
        left = max(0.0, allowance - self.spent) / max(1, self.active)
        return left if (end := self._budget.until_the_end) is None else min(left, end)

    def spare(self, most: float, least: float) -> float:
        """Seconds for what comes after everything else that is to be explained, up to `most`; 0 where fewer than `least` are left.

        It is asked while cases are judged, in the later part of the campaign: what is found until then comes first.
        """
        early = self._budget.seconds is not None and self._budget.elapsed_here < _LATER * self._budget.seconds
        if early or self.active:
            return 0.0
        allowance, end = self._allowance, self._budget.until_the_end
        left = min(most if allowance is None else allowance - self.spent, most if end is None else end, most)
        return left if left >= least else 0.0

    def next_slice(self, most: float, *, searching: bool, folding: bool = False) -> float | None:
        """Seconds for one more task: half of what is left, so that the first finding gets most and none gets all.

        On a busy machine it is more: a finding that gets a half of which another half is spent waiting has too little to be explained.

        Args:
            most: that one finding needs.
            searching: cases are still judged; then so many workers as `share` is of all of them explain, and one at least.
            folding: the task asks whether findings have one cause; once no cases are judged it may take all the time until the end.

        Returns:
            0 where it has to wait, None without a limit.
        """
        if searching and self.active >= max(1, int(self._share * self._workers)):
            return 0.0
        if (allowance := self._allowance) is None:
            return None
        if folding and not searching and (end := self._budget.until_the_end) is not None:
            return min(most, end) if end >= _LEAST_SLICE else 0.0
        now = self._clock()
        free = allowance - self._spent - sum(max(given, now - begun) for begun, given in self._active.values())
        slice_ = min(most, max(free * (1 + self._waits()) / 2, min(free, 2 * _LEAST_SLICE)))
        if (end := self._budget.until_the_end) is not None:
            slice_ = min(slice_, end)
        return slice_ if slice_ >= _LEAST_SLICE else 0.0

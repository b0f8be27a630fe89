"""Where the time of the workers of a GPU goes, and how much is compiled, added up case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.store.stats import LATER, Stats

if TYPE_CHECKING:
    from flashverify.campaign.protocol import CaseJudged

__all__ = ["TimeShares"]

_EVERY = 10.0
"""Seconds between two points of the timeline, as long as it is short."""
_POINTS = 360
"""Of the timeline; each time that there are so many, every second one goes."""


class TimeShares:
    """The counts of one call.

    Args:
        workers: processes that judge.
        compilers: processes that compile ahead.

    Attributes:
        opened: kinds that workers opened, of subjects that torch traces.
    """

    def __init__(self, workers: int, compilers: int) -> None:
        self._workers, self._compilers = workers, compilers
        self._cases = self._compiled = self._unasked = self._traced = 0
        self.opened = 0
        self._busy = self._compiling = self._oracle = 0.0
        self._later: tuple[int, int] | None = None
        self._timeline: list[tuple[float, int, int]] = []
        self._step, self._next = _EVERY, 0.0

    def judged(self, event: CaseJudged) -> None:
        """A case was judged."""
        self._cases += 1
        self._unasked += bool(event.result.unasked)
        self._compiled += event.spent.compiled
        self._traced += event.spent.traced
        self.opened += event.spent.opened
        self._compiling += event.spent.compiling
        self._oracle += event.spent.oracle
        self._busy += event.result.seconds

    def due(self, seconds: float, ahead: int) -> bool:
        """Whether a point of the timeline is due; it is noted then.

        Args:
            seconds: since the call began.
            ahead: kernels that were compiled ahead.
        """
        if seconds >= LATER and self._later is None:
            self._later = (self._cases, self._compiled + ahead)
        if seconds < self._next:
            return False
        self._timeline.append((round(seconds, 1), self._cases, self._compiled + ahead))
        if len(self._timeline) >= _POINTS:
            self._timeline, self._step = self._timeline[::2], 2 * self._step
        self._next = self._timeline[-1][0] + self._step
        return True

    def stats(self, seconds: float, *, ahead: int = 0, explaining: float = 0.0) -> Stats:
        """The counts so far.

        Args:
            seconds: since the call began.
            ahead: kernels that were compiled ahead.
            explaining: seconds of workers that findings took.
        """
        compiled, all_time = self._compiled + ahead, max(self._workers * seconds, 1e-9)
        own = max(0.0, self._busy - self._compiling - self._oracle)
        spent = {"judging": own, "oracle": self._oracle, "compiling": self._compiling, "explaining": explaining}
        shares = {name: round(min(1.0, time / all_time), 4) for name, time in spent.items()}
        later = None
        if self._later is not None:
            later = _per_thousand(compiled - self._later[1], self._cases - self._later[0])
        return Stats(
            seconds=round(seconds, 3),
            workers=self._workers,
            compilers=self._compilers,
            cases=self._cases,
            unasked=self._unasked,
            compiled=compiled,
            compiled_by_workers=self._compiled,
            traced=self._traced,
            per_thousand_cases=_per_thousand(compiled, self._cases),
            later_per_thousand_cases=later,
            shares=shares | {"idle": round(max(0.0, 1 - sum(shares.values())), 4)},
            timeline=tuple(self._timeline),
        )


def _per_thousand(compiled: int, cases: int) -> float:
    return round(1000 * compiled / max(cases, 1), 1)

"""Runs of a subject on cases, each made once, until the time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.clock import Clock
from flashverify.diagnosis.observation import LARGEST
from flashverify.diagnosis.observe import look

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flashverify.case.case import Case
    from flashverify.diagnosis.observation import Scene
    from flashverify.subjects.interface import Subject

__all__ = ["Trials", "work"]

_LEAST = 1000
"""Pairs whose run takes as long as what every run takes, whatever its size."""


class Trials:
    """What a subject did on the cases tried so far.

    Args:
        subject: the kernel under test.
        seconds: after which no further case is run.
        kept: share of the seconds that is over for all who ask, until `release`.
        clock: that counts them; None for one of its own.

    Attributes:
        scenes: the runs by case, in the order in which they were made.
    """

    def __init__(self, subject: Subject, seconds: float, *, kept: float = 0.0, clock: Clock | None = None) -> None:
        self.subject = subject
        self.scenes: dict[Case, Scene] = {}
        self._silent: set[Case] = set()
        self._clock = clock or Clock()
        self._begun = self._clock()
        self._all = seconds
        self._seconds = (1.0 - kept) * seconds
        self._longest = 0.0
        self._most = 0

    def anew(self, share: float) -> Trials:
        """The same runs, with a share of the time that is left, which begins now."""
        found = Trials(self.subject, max(0.0, share * (self._all - self._clock() + self._begun)), clock=self._clock)
        found.scenes, found._silent = self.scenes, self._silent
        found._longest, found._most = self._longest, self._most
        return found

    def left(self, share: float = 1.0) -> bool:
        """Whether `share` of the time is not over, and another run as long as the longest one would end in time."""
        now = self._clock() - self._begun
        return now < share * self._seconds and now + self._longest <= self._seconds

    def within(self, share: float = 1.0) -> bool:
        """Whether `share` of the time is not over, for what makes no run of a case."""
        return self._clock() - self._begun < share * self._seconds

    def hindrance(self, case: Case, share: float) -> str:
        """Why `case` is not run: `over` where `share` of the time is, `long` where it would end too late; empty where it may.

        With fewer pairs than the longest run had a run is taken to be shorter by as much.
        """
        now = self._clock() - self._begun
        if now >= share * self._seconds:
            return "over"
        part = min(1.0, (work(case) + _LEAST) / (self._most + _LEAST))
        return "long" if now + part * self._longest > self._seconds else ""

    def release(self, share: float = 1.0) -> None:
        """Gives the time that was kept, up to a share of the whole."""
        self._seconds = max(self._seconds, share * self._all)

    def hold(self, share: float) -> None:
        """Keeps what lies behind a share of the whole for what comes later, until `release`."""
        self._seconds = min(self._seconds, share * self._all)

    def keep(self, scene: Scene) -> None:
        """Adds a run that was made elsewhere."""
        self.scenes[scene.case] = scene

    def known(self, case: Case) -> bool:
        """Whether the case was tried."""
        return case in self.scenes or case in self._silent

    def scene(self, case: Case) -> Scene | None:
        """The run of `case`; None where the subject refuses it, raises on it, or it is too large."""
        if case in self.scenes:
            return self.scenes[case]
        if case in self._silent:
            return None
        begun = self._clock()
        found = None
        if work(case) <= LARGEST and self.subject.supports.refusal(case) is None:
            try:
                found = look(self.subject, case)
            except Exception:  # a defect may raise on other cases; those say nothing
                found = None
        taken = self._clock() - begun
        if taken > self._longest:
            self._longest, self._most = taken, work(case)
        if found is None:
            self._silent.add(case)
        else:
            self.scenes[case] = found
        return found

    def of(self, cases: Iterable[Case], *, share: float = 1.0) -> Iterator[Scene]:
        """The runs of `cases`, as long as `share` of the time is not over, of those that would end in time."""
        for case in cases:
            hindrance = self.hindrance(case, share)
            if hindrance == "over":
                return
            scene = None if hindrance else self.scene(case)
            if scene is not None:
                yield scene


def work(case: Case) -> int:
    """Pairs of rows and keys over all heads."""
    return case.batch * case.heads_q * case.seq_q * case.seq_k

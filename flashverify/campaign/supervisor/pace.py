"""How fast a search on a GPU compiles: at first as fast as it can, then so many kernels for each case that was judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.campaign.protocol import Prepare

__all__ = ["Pace"]

_FREE_SECONDS = 120.0
"""Until then everything is compiled at once."""
_PER_CASE = 10 / 1000
"""From then on so many kernels for each case that is judged."""


class Pace:
    """The kernels that were compiled, and those that are to be expected of the tasks that processes have.

    Many processes compile. What they have when the free time ends, or when the next kernel is due, is counted before they are done: as many
    kernels as a task of its sort, a kind or given cases, had on average.

    Attributes:
        compiled: kernels so far.
    """

    def __init__(self) -> None:
        self.compiled = 0
        self._out = {True: 0, False: 0}  # by whether it is a kind, tasks without an answer
        self._ended = {True: 0, False: 0}
        self._kernels = {True: 0, False: 0}
        self._free_until: tuple[int, int] | None = None

    @property
    def expected(self) -> float:
        """Kernels that the tasks without an answer are expected to compile."""
        return sum(out * self._kernels[sort] / max(self._ended[sort], 1) for sort, out in self._out.items())

    def allows(self, judged: int, elapsed: float) -> bool:
        """Whether one more task may be handed out.

        Args:
            judged: cases so far.
            elapsed: seconds since the search began.
        """
        if elapsed < _FREE_SECONDS:
            return True
        self._free_until = self._free_until or (judged, self.compiled)
        cases, compiled = self._free_until
        return self.compiled - compiled + self.expected <= _PER_CASE * (judged - cases)

    def handed(self, task: Prepare) -> None:
        """A task was handed out."""
        self._out[task.kind >= 0] += 1

    def ended(self, kind: int, compiled: int) -> None:
        """A task was carried out; `kind` and `compiled` as `Prepared` has them."""
        self._back(kind)
        self._ended[kind >= 0] += 1
        self._kernels[kind >= 0] += compiled
        self.compiled += compiled

    def lost(self, task: Prepare) -> None:
        """Nobody carries a task out any more."""
        self._back(task.kind)

    def _back(self, kind: int) -> None:
        self._out[kind >= 0] = max(0, self._out[kind >= 0] - 1)

"""Which GPUs are set aside: one on which worker after worker ends without reason, while others judge the same cases."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from flashverify.campaign.gpus import gpu_of_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GpuHealth"]

_STRIKES = 3
"""Workers in a row that a GPU may lose without a reason."""


class GpuHealth:
    """Counts the workers that each GPU loses in a row. It knows nothing of a campaign whose workers have no GPU of their own.

    Args:
        gpus: over which the workers take turns; with none nothing is counted.
        workers: processes.

    Attributes:
        aside: why each GPU that is used no more is not, in words.
    """

    def __init__(self, gpus: Sequence[str], workers: int) -> None:
        self._used = tuple(dict.fromkeys(gpu_of_worker(number, gpus) for number in range(workers))) if gpus else ()
        self._strikes: Counter[str] = Counter()
        self.aside: dict[str, str] = {}

    @property
    def usable(self) -> tuple[str, ...]:
        """The GPUs that are not set aside."""
        return tuple(gpu for gpu in self._used if gpu not in self.aside)

    @property
    def none_left(self) -> bool:
        """Whether all are set aside."""
        return bool(self._used) and not self.usable

    def judged(self, gpu: str) -> None:
        """A worker judged a case there."""
        self._strikes.pop(gpu, None)

    def strike(self, gpu: str, why: str, *, final: bool = False) -> bool:
        """A worker ended there for no reason that lies in its case; whether the GPU is set aside for it.

        Args:
            gpu: empty for none.
            why: in words.
            final: whether nothing can be started there any more.
        """
        if gpu not in self.usable:
            return False
        self._strikes[gpu] += 1
        if final:
            self.aside[gpu] = why
            return True
        if self._strikes[gpu] < _STRIKES:
            return False
        self.aside[gpu] = (
            f"{_STRIKES} workers in a row were lost on it at cases that are not to blame, the last because {' '.join(why.split())[:300]}"
        )
        return True

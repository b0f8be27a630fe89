"""Times of both sides in rounds, and whether they differ by more than one side differs from itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flashverify.bench.spread import Spread

if TYPE_CHECKING:
    from flashverify.bench.records import Workload

__all__ = ["Speed", "Speeds"]


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

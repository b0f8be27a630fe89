"""What a campaign counts of its results, whatever failed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashverify.judge.verdict import Sampled, Status, from_hex

if TYPE_CHECKING:
    from flashverify.judge.verdict import CaseResult

__all__ = ["Counts"]


@dataclass
class Counts:
    """Cases by what came of them.

    Attributes:
        judged, unsupported, errors: cases; `covering` of the judged ones count as coverage.
        first_error: message of the first case that could not be judged.
        sampled: what the oracle judged of large cases.
        worst: the largest ratio of each output; NaN is none.
        evidence: by subject, of its last case without a failure.
    """

    judged: int = 0
    unsupported: int = 0
    covering: int = 0
    errors: int = 0
    first_error: str = ""
    sampled: Sampled | None = None
    worst: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)

    def count(self, result: CaseResult) -> None:
        """Count a result."""
        if result.unsupported is not None:
            self.unsupported += 1
            return
        if any(v.status is Status.ERROR for v in result.verdicts) or not result.verdicts:
            self.errors += 1
            self.first_error = self.first_error or next(
                (v.message for v in result.verdicts if v.status is Status.ERROR), "no verdict"
            )
        else:
            self.judged += 1
            self.covering += result.coverage
        if result.sampled is not None:
            self.sampled = result.sampled.plus(self.sampled)
        for stats in result.stats:
            self._raise(stats.output, from_hex(stats.worst))
        if result.evidence and not result.failures:
            self.evidence[result.subject] = result.evidence

    def count_all(self, later: Counts) -> None:
        """Count what was counted of the results after these."""
        self.judged += later.judged
        self.unsupported += later.unsupported
        self.covering += later.covering
        self.errors += later.errors
        self.first_error = self.first_error or later.first_error
        if later.sampled is not None:
            self.sampled = later.sampled.plus(self.sampled)
        for output, ratio in later.worst.items():
            self._raise(output, ratio)
        self.evidence |= later.evidence

    def _raise(self, output: str, ratio: float) -> None:
        if ratio > self.worst.get(output, -1.0):  # which NaN is not
            self.worst[output] = ratio

"""How close a case came to its bounds, output by output and mode by mode."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.judge.verdict import from_hex

if TYPE_CHECKING:
    from flashverify.judge.verdict import CaseResult

__all__ = ["ratios"]


def ratios(result: CaseResult) -> dict[str, float]:
    """Worst error / bound by `output mode`, where it is a positive number: of several judgements of an output the largest."""
    found: dict[str, float] = {}
    for stats in result.stats:
        ratio, label = from_hex(stats.worst), f"{stats.output} {stats.mode}"
        if 0 < ratio < math.inf:
            found[label] = max(ratio, found.get(label, 0.0))
    return found

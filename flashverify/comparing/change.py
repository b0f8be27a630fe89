"""What moved between two runs: outputs, cases, failures."""

from __future__ import annotations

import heapq
import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.registry import failure_title
from flashverify.report.axes import dtype_of
from flashverify.report.bias import Bias
from flashverify.report.group import GroupKey, percentile, rank

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from flashverify.comparing.joined import Identity, Pair, Place, Seen
    from flashverify.comparing.thresholds import Thresholds

__all__ = ["LISTED", "Changed", "Mover", "Row", "changed", "grew", "movers", "rows"]

LISTED = 10
"""Cases listed of each kind."""


@dataclass(frozen=True, slots=True)
class Row:
    """One output: worst ratio and 99th percentile of the worst ratios, over the `cases` judged in both runs.

    Attributes:
        bias: of the differences of the mean signed ratios, after - before, case by case.
    """

    key: GroupKey
    cases: int
    worst: tuple[float, float]
    p99: tuple[float, float]
    bias: Bias

    def grew(self, limits: Thresholds) -> bool:
        """Whether one of the two grew by more than the limits allow."""
        return grew(*self.worst, limits) or grew(*self.p99, limits)

    def drifted(self, limits: Thresholds) -> bool:
        """Whether the mean signed ratio moved significantly, by more than the limits allow."""
        mean = self.bias.mean
        return mean is not None and abs(mean) > limits.bias_shift and self.bias.significant


@dataclass(frozen=True, slots=True)
class Mover:
    """A case whose worst ratio changed, at the output where it changed most."""

    subject: str
    case: str
    output: str
    mode: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Changed:
    """A case that newly fails or newly passes, and with what failures."""

    subject: str
    case: str
    failures: tuple[str, ...]
    message: str


def grew(before: float, after: float, limits: Thresholds) -> bool:
    """Whether a ratio grew by more than the limits allow, to something that matters."""
    if math.isnan(after) or math.isnan(before):
        return math.isnan(after) and not math.isnan(before)
    return after >= limits.negligible and after > limits.worst_growth * before


def changed(pair: Pair, first: Seen, second: Seen, known: Set[Identity] = frozenset()) -> Changed | None:
    """The failures of `second` that `first` does not have, and that are not known."""
    old = first.failures
    new = {
        identity: message
        for identity, message in second.failures.items()
        if identity not in old and identity not in known
    }
    if not new:
        return None
    return Changed(pair.subject, pair.case, tuple(failure_title(*identity) for identity in sorted(new)), new[min(new)])


def rows(pairs: Iterable[Pair]) -> tuple[Row, ...]:
    """One for each output of each subject, dtype and mode; the pairs are judged in both runs."""
    table: dict[GroupKey, tuple[array[float], array[float]]] = {}
    drifts: dict[GroupKey, Bias] = {}
    for pair in pairs:
        old, new, dtype = pair.before.ratios, pair.after.ratios, dtype_of(pair.case)
        before, after = pair.before.biases, pair.after.biases
        for output, mode in before.keys() & after.keys():
            key = GroupKey(pair.subject, dtype, output, mode)
            if (drift := drifts.get(key)) is None:
                drift = drifts[key] = Bias()
            drift.add(after[output, mode] - before[output, mode])
        for output, mode in old.keys() & new.keys():
            key = GroupKey(pair.subject, dtype, output, mode)
            if (columns := table.get(key)) is None:
                columns = table[key] = (array("d"), array("d"))
            columns[0].append(old[output, mode])
            columns[1].append(new[output, mode])
    found = []
    for key in sorted(table, key=rank):
        (worst_before, p99_before), (worst_after, p99_after) = map(_extremes, table[key])
        drift = drifts.get(key, Bias())
        found.append(Row(key, len(table[key][0]), (worst_before, worst_after), (p99_before, p99_after), drift))
    return tuple(found)


def _extremes(ratios: array[float]) -> tuple[float, float]:
    ordered = sorted(ratios, key=_sortable)
    p99 = percentile(ordered, 99.0)
    assert p99 is not None, "a row has at least one case"
    return ordered[-1], p99


def _sortable(ratio: float) -> tuple[bool, float]:
    return (math.isnan(ratio), 0.0 if math.isnan(ratio) else ratio)


def movers(pairs: Iterable[Pair]) -> tuple[Mover, ...]:
    """The cases that moved most, up or down."""

    def moved(pair: Pair) -> tuple[float, Mover] | None:
        if (pair.before.places, pair.before.values) == (pair.after.places, pair.after.values):
            return None
        old, new = pair.before.ratios, pair.after.ratios
        best: tuple[float, Place] | None = None
        for place in sorted(old.keys() & new.keys()):
            size = _distance(old[place], new[place])
            if size > 0 and (best is None or size > best[0]):
                best = (size, place)
        return best and (best[0], Mover(pair.subject, pair.case, *best[1], old[best[1]], new[best[1]]))

    found = (item for pair in pairs if (item := moved(pair)))
    return tuple(mover for _, mover in heapq.nsmallest(LISTED, found, key=lambda m: (-m[0], m[1].subject, m[1].case)))


def _distance(before: float, after: float) -> float:
    if math.isnan(before) and math.isnan(after):
        return 0.0
    return (
        abs(after - before) if math.isfinite(before) and math.isfinite(after) else 0.0 if before == after else math.inf
    )

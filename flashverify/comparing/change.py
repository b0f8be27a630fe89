"""What moved between two runs: outputs, cases, failures."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashverify.checks.registry import failure_title
from flashverify.report.bias import Bias
from flashverify.report.columns import VOID
from flashverify.report.group import GroupKey, percentile, rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from flashverify.comparing.blocks import Block
    from flashverify.comparing.joined import Joined
    from flashverify.comparing.loaded import Floats
    from flashverify.comparing.pair import Pair, Seen
    from flashverify.comparing.thresholds import Thresholds
    from flashverify.report.columns import Identity, Place

__all__ = ["LISTED", "Changed", "Mover", "Row", "grew", "movers", "newly_failing", "newly_passing", "rows"]

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


def _changed(pair: Pair, first: Seen, second: Seen, known: Set[Identity] = frozenset()) -> Changed | None:
    """The failures of `second` that `first` does not have, and that are not known."""
    new = second.failures - first.failures - known
    if not new:
        return None
    titles = tuple(failure_title(*identity) for identity in sorted(new))
    return Changed(pair.subject, pair.case, titles, second.message(min(new)))


def newly_failing(joined: Joined, known: Callable[[Pair], Set[Identity]]) -> list[Changed]:
    """The cases that newly fail, but for failures that are known, by subject and text."""
    pairs = joined.pairs(joined.failing[1])
    found = (_changed(pair, pair.before, pair.after, known(pair)) for pair in pairs)
    return sorted(filter(None, found), key=_by_case)


def newly_passing(joined: Joined) -> list[Changed]:
    """The cases that failed and pass now, likewise."""
    failed, fails = joined.failing
    found = (_changed(pair, pair.after, pair.before) for pair in joined.pairs(joined.judged & failed & ~fails))
    return sorted(filter(None, found), key=_by_case)


def _by_case(found: Changed) -> tuple[str, str]:
    return found.subject, found.case


def rows(joined: Joined) -> tuple[Row, ...]:
    """One for each output of each subject, dtype and mode, over the cases that are judged in both runs."""
    table: dict[GroupKey, tuple[list[Floats], list[Floats]]] = {}
    drifts: dict[GroupKey, Bias] = {}
    for block in joined.blocks:
        for place in block.places:
            key = GroupKey(block.subject, block.dtype, *place)
            old, new = block.biases(place)
            told = ~(np.isnan(old) | np.isnan(new))
            if told.any():
                drifts.setdefault(key, Bias()).extend(Bias.of(new[told] - old[told]))
            old, new = block.ratios(place)
            given = (old != VOID) & (new != VOID)
            if given.any():
                columns = table.setdefault(key, ([], []))
                columns[0].append(old[given])
                columns[1].append(new[given])
    found = []
    for key in sorted(table, key=rank):
        old, new = (np.sort(np.concatenate(column)) for column in table.pop(key))  # NaN is last
        drift = drifts.get(key, Bias())
        found.append(Row(key, len(old), (float(old[-1]), float(new[-1])), (_p99(old), _p99(new)), drift))
    return tuple(found)


def _p99(ordered: Floats) -> float:
    p99 = percentile(ordered, 99.0)
    assert p99 is not None, "a row has at least one case"
    return p99


def movers(joined: Joined) -> tuple[Mover, ...]:
    """The cases that moved most, up or down, each at the output where it moved most."""
    found = [each for block in joined.blocks for each in _most_moved(block)]
    least = sorted((size for size, *_ in found), reverse=True)[:LISTED][-1:]
    named = []
    for size, pair, place, old, new in found:
        if [size] >= least:
            named.append((size, Mover(pair.subject, pair.case, *place, old, new)))
    return tuple(mover for _, mover in heapq.nsmallest(LISTED, named, key=lambda m: (-m[0], m[1].subject, m[1].case)))


def _most_moved(block: Block) -> Iterator[tuple[float, Pair, Place, float, float]]:
    """How far, which case, where, from which ratio to which: those of a block that moved most, more than are listed only where they moved as far."""
    if not block.places:
        return
    ratios = [block.ratios(place) for place in block.places]
    distances = np.stack([_distances(old, new) for old, new in ratios])
    sizes = distances.max(0)
    least = np.partition(sizes, -LISTED)[-LISTED] if len(sizes) > LISTED else 0.0
    for n in np.flatnonzero((sizes > 0) & (sizes >= least)).tolist():
        best = int(distances[:, n].argmax())
        old, new = ratios[best]
        yield float(sizes[n]), block.pair(n), block.places[best], float(old[n]), float(new[n])


def _distances(before: Floats, after: Floats) -> Floats:
    """How far each ratio moved; 0 where one of the two is void."""
    finite = np.isfinite(before) & np.isfinite(after)
    alike = (before == after) | (np.isnan(before) & np.isnan(after)) | (before == VOID) | (after == VOID)
    with np.errstate(invalid="ignore"):
        return np.where(alike, 0.0, np.where(finite, np.abs(after - before), np.inf))

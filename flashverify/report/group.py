"""Statistics of one output in one mode, over the cases of a run."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from flashverify.judge.verdict import OutputStats, from_hex
from flashverify.judge.wording import ratio_of, worse
from flashverify.report.axes import Axes, dtype_rank, output_rank, position
from flashverify.report.bias import Bias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PERCENTILES", "Group", "GroupKey", "Peak", "percentile", "rank", "stats_ratio"]

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_Place = TypeVar("_Place")


class GroupKey(NamedTuple):
    """What a group of statistics is about."""

    subject: str
    dtype: str
    output: str
    mode: str


@dataclass(frozen=True, slots=True)
class Peak:
    """A worst ratio and where it was seen."""

    ratio: float
    case: str
    index: tuple[int, ...]


@dataclass(slots=True)
class Group:
    """Statistics of one output in one mode. Ratios are the worst ones of a case; cases without a judged element have none.

    Attributes:
        bias: of the mean signed ratios of the cases.
        dull: cases in which zeros would have passed.
    """

    cases: int = 0
    elements: int = 0
    exempt: int = 0
    uninformative: int = 0
    dull: int = 0
    bias: Bias = field(default_factory=Bias)
    worst: Peak | None = None
    ratios: array[float] = field(default_factory=lambda: array("d"))
    lengths: dict[int, float] = field(default_factory=dict)
    regimes: dict[str, float] = field(default_factory=dict)
    masks: dict[str, float] = field(default_factory=dict)
    cells: dict[tuple[int, int], float] = field(default_factory=dict)
    _percentiles: tuple[int, tuple[float | None, ...]] = field(default=(-1, ()), compare=False, repr=False)

    def add(self, stats: OutputStats, case: str, axes: Axes) -> None:
        """Add one case."""
        self.cases += 1
        self.elements += stats.elements
        self.exempt += stats.exempt
        self.uninformative += stats.uninformative
        ratio = stats_ratio(stats)
        if ratio is None:
            return
        self.ratios.append(ratio)
        self.dull += stats.telling == 0
        if stats.signed:
            self.bias.add(from_hex(stats.signed))
        if self.worst is None or (not self.worst.ratio >= ratio and worse(self.worst.ratio, ratio)):
            self.worst = Peak(ratio, case, stats.index)
        _raise(self.lengths, axes.bucket, ratio)
        _raise(self.regimes, axes.regime_of(stats.output, stats.index), ratio)
        _raise(self.masks, axes.mask, ratio)
        if (place := position(stats.output, stats.index, axes)) is not None:
            _raise(self.cells, (axes.bucket, place), ratio)

    def extend(self, later: Group) -> None:
        """Add those of the cases after these."""
        self.cases += later.cases
        self.elements += later.elements
        self.exempt += later.exempt
        self.uninformative += later.uninformative
        self.dull += later.dull
        self.bias.extend(later.bias)
        if later.worst is not None and (self.worst is None or worse(self.worst.ratio, later.worst.ratio)):
            self.worst = later.worst
        self.ratios.extend(later.ratios)
        for bucket, ratio in later.lengths.items():
            _raise(self.lengths, bucket, ratio)
        for mine, peaks in ((self.regimes, later.regimes), (self.masks, later.masks)):
            for name, ratio in peaks.items():
                _raise(mine, name, ratio)
        for cell, ratio in later.cells.items():
            _raise(self.cells, cell, ratio)

    @property
    def percentiles(self) -> tuple[float | None, ...]:
        """At `PERCENTILES`."""
        import numpy as np

        if self._percentiles[0] != len(self.ratios):  # which only grow
            ordered = np.sort(np.frombuffer(self.ratios)) if self.ratios else self.ratios  # NaN is last
            self._percentiles = len(self.ratios), tuple(percentile(ordered, q) for q in PERCENTILES)
        return self._percentiles[1]


def rank(key: GroupKey) -> tuple[object, ...]:
    """Sort key of groups: subject, dtype, output, end to end before conditional."""
    return (key.subject, dtype_rank(key.dtype), output_rank(key.output), key.mode != "end-to-end", key.mode)


def stats_ratio(stats: OutputStats) -> float | None:
    """The worst ratio, or None where no element was judged."""
    ratio = ratio_of(stats.worst)
    return None if ratio == 0 and not stats.index else ratio


def percentile(ordered: Sequence[float] | NDArray[np.float64], q: float) -> float | None:
    """The smallest value that at least `q` percent of `ordered` do not exceed; None of nothing."""
    if not len(ordered):
        return None
    return float(ordered[max(0, math.ceil(q * len(ordered) / 100) - 1)])


def _raise(peaks: dict[_Place, float], place: _Place, ratio: float) -> None:
    before = peaks.get(place)
    if before is None or (not before >= ratio and worse(before, ratio)):  # no answer to >= where one is NaN
        peaks[place] = ratio

"""What became of every element from one side to the other, added up over cases.

A row is an output in a dtype. Its ratios are those of all elements, not the worst of each case. Three questions are asked of the cases as
pairs, each with a confidence sequence, so that noise is no news: did the size of the errors change, their bias, their drift toward zero?
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flashverify.comparing.ulp import ulp_distance
from flashverify.report.axes import axes_of, bucket_text, dtype_rank, output_rank
from flashverify.report.bias import Bias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.comparing.side_process import Measured
    from flashverify.report.axes import Axes

__all__ = ["BINS", "ElementRow", "Elements", "Histogram", "Place", "Point"]

_OCTAVES = (-40, 8)
_PER_OCTAVE = 16
BINS = (_OCTAVES[1] - _OCTAVES[0]) * _PER_OCTAVE
_MOST_POINTS = 4000
_ULP_BINS = 34
_LEAST_PLACE = 4
"""Cases that a place of `where` has at least."""


@dataclass(slots=True)
class Histogram:
    """Sizes of ratios in bins of a sixteenth of an octave, from 2^-40 to 2^8; smaller ones in the first, larger ones in the last.

    Attributes:
        nonfinite: elements that are NaN or infinite, of those of which something is asked.
    """

    counts: Any = field(default_factory=lambda: np.zeros(BINS, np.int64))
    worst: float = 0.0
    case: str = ""
    squares: float = 0.0
    count: int = 0
    nonfinite: int = 0

    def add(self, case: str, ratios: Any) -> None:
        """Add the judged elements of a case."""
        sizes = np.abs(ratios[np.isfinite(ratios)]).astype(np.float64)
        if sizes.size == 0:
            return
        with np.errstate(divide="ignore"):
            at = np.floor((np.log2(sizes) - _OCTAVES[0]) * _PER_OCTAVE)
        self.counts += np.bincount(np.clip(at, 0, BINS - 1).astype(np.int64), minlength=BINS)
        self.count += sizes.size
        self.squares += float(np.square(sizes).sum())
        if (peak := float(sizes.max())) > self.worst:
            self.worst, self.case = peak, case

    def quantile(self, share: float) -> float:
        """A ratio that at least so many of the elements do not exceed, to a sixteenth of an octave; NaN of nothing."""
        if not self.count:
            return math.nan
        at = int(np.searchsorted(np.cumsum(self.counts), math.ceil(share * self.count)))
        return min(self.worst, 2.0 ** (_OCTAVES[0] + (at + 1) / _PER_OCTAVE)) if at else 0.0


@dataclass(slots=True)
class Place:
    """The cases that have one value of one axis: by how many octaves their errors grew, and the worst ratios."""

    growth: Bias = field(default_factory=Bias)
    changed: int = 0
    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """One output of one case: its worst ratio on either side, for a picture."""

    case: str
    length: int
    regime: str
    before: float
    after: float


@dataclass(slots=True)
class ElementRow:
    """One output in one dtype.

    Attributes:
        elements: compared, of all cases.
        changed: of other bits, -0 and +0 and the bits of NaN apart.
        ulp: the largest change of an element, in ulp of its dtype; infinite where a number became NaN or infinite, or the other way round.
        ulp_case: where.
        ulps: elements by the power of two of their change.
        growth: of the root mean square ratio of a case, in octaves.
        bias: change of the mean signed ratio of a case.
        drift: change of the mean of sign(exact) * ratio of a case; negative is toward zero.
        width: change of the bounds of a case, in octaves: positive where the later form is looser.
        where: by axis and value.
    """

    dtype: str
    output: str
    cases: int = 0
    changed_cases: int = 0
    elements: int = 0
    changed: int = 0
    ulp: float = 0.0
    ulp_case: str = ""
    ulps: Counter[int] = field(default_factory=Counter)
    before: Histogram = field(default_factory=Histogram)
    after: Histogram = field(default_factory=Histogram)
    growth: Bias = field(default_factory=Bias)
    bias: Bias = field(default_factory=Bias)
    drift: Bias = field(default_factory=Bias)
    width: Bias = field(default_factory=Bias)
    where: dict[tuple[str, str], Place] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)

    def add(self, case: str, old: Measured, new: Measured) -> None:
        """Add the output of one case."""
        self.cases += 1
        self.elements += old.bits.size
        distance = ulp_distance(old.bits, new.bits, old.dtype)
        moved = int(np.count_nonzero(distance))
        self.changed += moved
        self.changed_cases += moved > 0
        if moved:
            largest = float(distance.max())
            if largest > self.ulp:
                self.ulp, self.ulp_case = largest, case
            with np.errstate(divide="ignore"):
                powers = np.clip(np.floor(np.log2(distance[distance > 0])), 0, _ULP_BINS)
            self.ulps.update(Counter(powers.astype(int).tolist()))
        for side, found in ((self.before, old), (self.after, new)):
            side.add(case, found.ratios)
            side.nonfinite += int(np.count_nonzero(np.isinf(found.ratios)))
        if math.isfinite(old.bound) and math.isfinite(new.bound):
            self.width.add(new.bound - old.bound)
        self._pair(case, old, new, moved > 0)

    def _pair(self, case: str, old: Measured, new: Measured, moved: bool) -> None:
        both = np.isfinite(old.ratios) & np.isfinite(new.ratios)
        if not both.any():
            return
        first, second = (x.ratios[both].astype(np.float64) for x in (old, new))
        signs = old.signs[both]
        growth = _octaves(float(np.sqrt(np.square(first).mean())), float(np.sqrt(np.square(second).mean())))
        self.growth.add(growth)
        self.bias.add(float((_clamped(second) - _clamped(first)).mean()))
        self.drift.add(float((signs * (_clamped(second) - _clamped(first))).mean()))
        worst = float(np.abs(first).max()), float(np.abs(second).max())
        axes = axes_of(case)
        for axis, value in _places(axes):
            place = self.where.setdefault((axis, value), Place())
            place.growth.add(growth)
            place.changed += moved
            place.before, place.after = max(place.before, worst[0]), max(place.after, worst[1])
        if len(self.points) < _MOST_POINTS:
            self.points.append(Point(case, max(axes.seq_q, axes.seq_k), axes.regime, *worst))

    @property
    def moved_most(self) -> list[tuple[str, str, Place]]:
        """Axes and values by how far the errors of their cases grew or shrank, the farthest first; those of enough cases."""
        found = [
            (*key, place) for key, place in self.where.items() if place.growth.count >= _LEAST_PLACE and place.changed
        ]
        return sorted(found, key=lambda each: (-abs(each[2].growth.mean or 0.0), each[:2]))


@dataclass(slots=True)
class Elements:
    """All rows.

    Attributes:
        measured: cases whose outputs were compared.
        raised: cases on which a side raised, with what it said.
    """

    measured: int = 0
    raised: dict[str, str] = field(default_factory=dict)
    table: dict[tuple[str, str], ElementRow] = field(default_factory=dict)

    def add(self, case: str, before: dict[str, Measured], after: dict[str, Measured]) -> None:
        """Add a case; an output of one side alone, or of another shape or dtype, is the business of the verdicts."""
        self.measured += 1
        for name in before.keys() & after.keys():
            old, new = before[name], after[name]
            if (old.dtype, old.bits.shape) == (new.dtype, new.bits.shape) and old.bits.size:
                dtype = axes_of(case).dtype
                self.table.setdefault((dtype, name), ElementRow(dtype, name)).add(case, old, new)

    @property
    def rows(self) -> tuple[ElementRow, ...]:
        """By dtype and output, in their usual order."""
        return tuple(sorted(self.table.values(), key=lambda row: (dtype_rank(row.dtype), output_rank(row.output))))

    @property
    def unchanged(self) -> bool:
        """Whether cases were compared and no element of any has other bits."""
        return self.measured > 0 and not self.raised and not any(row.changed for row in self.table.values())


_PLACED = ("mask", "modifier", "head dim", "group", "launch")


def _places(axes: Axes) -> Iterable[tuple[str, str]]:
    """The axes by which growth is told, and what the case has on them."""
    yield "length", bucket_text(axes.bucket)
    yield "regime", axes.regime
    yield from (trait for trait in axes.traits if trait[0] in _PLACED)
    if axes.mask == "none":
        yield "mask", "none"


def _clamped(ratios: Any) -> Any:
    return np.clip(ratios, -1, 1)


def _octaves(before: float, after: float) -> float:
    """log2 of the growth, within four octaves; sizes below 2^-40 count as that."""
    least = 2.0 ** _OCTAVES[0]
    return max(-4.0, min(4.0, math.log2(max(after, least) / max(before, least))))

"""The record: for each kernel, dtype and output how large the errors of all elements are, as histograms."""

from __future__ import annotations

import lzma
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

PER_OCTAVE = 4
RATIO_OCTAVES = (-24, 4)
ULP_OCTAVES = (-12, 40)
GROUPS = ("usual", "hard")


class Sizes(msgspec.Struct):
    """Sizes of errors in bins of a quarter of an octave; smaller and larger ones are in the first and in the last.

    Attributes:
        octaves: from which power of two to which.
        counts: elements by number of the bin.
        worst: the largest, and its case.
    """

    octaves: tuple[int, int]
    counts: dict[int, int] = {}
    worst: float = 0.0
    case: str = ""

    def add(self, sizes: np.ndarray, case: str) -> None:
        """Add the elements of a case; float64, finite, at least 0."""
        low, high = self.octaves
        with np.errstate(divide="ignore"):
            at = np.clip(np.floor((np.log2(sizes) - low) * PER_OCTAVE), 0, (high - low) * PER_OCTAVE - 1)
        for place, count in zip(*np.unique(at.astype(int), return_counts=True), strict=True):
            self.counts[int(place)] = self.counts.get(int(place), 0) + int(count)
        if sizes.size and (peak := float(sizes.max())) > self.worst:
            self.worst, self.case = peak, case

    def merge(self, other: Sizes) -> None:
        """Add what another process found."""
        for place, count in other.counts.items():
            self.counts[place] = self.counts.get(place, 0) + count
        if other.worst > self.worst:
            self.worst, self.case = other.worst, other.case

    @property
    def count(self) -> int:
        """Elements."""
        return sum(self.counts.values())

    def quantile(self, share: float) -> float:
        """A size that at least so many of the elements do not exceed, to a quarter of an octave; NaN of nothing, 0 of the first bin."""
        left = math.ceil(share * self.count)
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                return min(self.worst, 2.0 ** (self.octaves[0] + (place + 1) / PER_OCTAVE)) if place else 0.0
        return math.nan

    def shares(self, per_octave: int = 2) -> list[float]:
        """The share of elements in bins of so many an octave, from the lowest octave on."""
        wide, whole = PER_OCTAVE // per_octave, max(self.count, 1)
        found = [0.0] * ((self.octaves[1] - self.octaves[0]) * per_octave)
        for place, count in self.counts.items():
            found[place // wide] += count / whole
        return found


class Row(msgspec.Struct):
    """One output in one dtype, on usual or on hard values.

    Attributes:
        group: `usual` or `hard`.
        outside: elements outside their bounds, or not finite where they must be.
        outside_case: the first case with one.
        ratios: error over bound.
        ulps: error in units in the last place of the output's own dtype at the exact value.
    """

    dtype: str
    output: str
    group: str
    cases: int = 0
    outside: int = 0
    outside_case: str = ""
    ratios: Sizes = msgspec.field(default_factory=lambda: Sizes(RATIO_OCTAVES))
    ulps: Sizes = msgspec.field(default_factory=lambda: Sizes(ULP_OCTAVES))

    def merge(self, other: Row) -> None:
        """Add what another process found."""
        self.cases += other.cases
        self.outside += other.outside
        self.outside_case = self.outside_case or other.outside_case
        self.ratios.merge(other.ratios)
        self.ulps.merge(other.ulps)


class Kernel(msgspec.Struct):
    """One kernel.

    Attributes:
        evidence: what it ran on.
        raised: cases on which it raised; the first message.
        reason: why there is nothing, or less than asked for.
    """

    name: str
    summary: str
    evidence: str = ""
    cases: int = 0
    raised: int = 0
    raised_first: str = ""
    reason: str = ""
    rows: list[Row] = []

    def row(self, dtype: str, output: str, group: str) -> Row:
        """The row of a place, made where there is none."""
        for row in self.rows:
            if (row.dtype, row.output, row.group) == (dtype, output, group):
                return row
        self.rows.append(Row(dtype, output, group))
        return self.rows[-1]

    def merge(self, other: Kernel) -> None:
        """Add what another process found."""
        self.evidence = self.evidence or other.evidence
        self.cases += other.cases
        self.raised += other.raised
        self.raised_first = self.raised_first or other.raised_first
        self.reason = self.reason or other.reason
        for row in other.rows:
            self.row(row.dtype, row.output, row.group).merge(row)


class Record(msgspec.Struct):
    """A run over all kernels.

    Attributes:
        device: `cpu` or `cuda`.
        tutorial: SHA-256 of the file of Triton's tutorial 06; empty where it was not judged.
    """

    device: str
    minutes: float
    seed: int
    environment: dict[str, str]
    kernels: list[Kernel]
    tutorial: str = ""
    format: int = 1


def write(record: Record, path: Path) -> None:
    """Compressed JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(msgspec.json.encode(record), preset=9))


def read(path: Path) -> Record:
    """A record that `write` wrote."""
    return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=Record)

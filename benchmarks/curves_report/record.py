"""What the curves are drawn of."""

from __future__ import annotations

import lzma
import statistics
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Point", "Record", "read", "write"]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One place of one curve.

    Attributes:
        curve: `length`, `block` or `share`.
        series: what was run.
        direction: `forward` or `backward`. The memory of `backward` is that of forward and backward together.
        x: tokens, queries and keys of a tile, or the live share of the blocks.
        quantity: `ms`, `bytes` (the peak beyond q, k, v and dO) or `accesses` (elements loaded and stored, of one head).
        values: one a round; empty where there is none.
        reason: why there is none.
    """

    curve: str
    series: str
    direction: str
    x: float
    quantity: str
    values: tuple[float, ...] = ()
    reason: str = ""

    @property
    def median(self) -> float | None:
        """Median of the values, None where there is none."""
        return statistics.median(self.values) if self.values else None


class Record(msgspec.Struct, kw_only=True):
    """A run of all curves.

    Attributes:
        device: `cpu` or `cuda`; a record of a CPU has counted accesses only.
        environment: versions and machine.
        problems: for each curve and `counted`, the sizes in words.
        points: of all curves.
        seconds: how long the run took.
    """

    device: str
    environment: dict[str, str]
    problems: dict[str, str]
    points: list[Point]
    seconds: float = 0.0
    format: int = 1

    def of(self, curve: str, quantity: str, direction: str) -> dict[str, dict[float, Point]]:
        """The points of one panel, by series and place."""
        found: dict[str, dict[float, Point]] = {}
        for point in self.points:
            if (point.curve, point.quantity, point.direction) == (curve, quantity, direction):
                found.setdefault(point.series, {})[point.x] = point
        return found


def write(record: Record, path: Path) -> None:
    """Compressed JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(msgspec.json.encode(record), preset=9))


def read(path: Path) -> Record:
    """A record that `write` wrote."""
    return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=Record)

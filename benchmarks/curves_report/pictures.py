"""The pictures of a record: which curves stand in which panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curves_report.chart import chart, document

if TYPE_CHECKING:
    from curves_report.record import Record

__all__ = ["AXES", "IMAGES", "ORDER", "QUANTITIES", "medians", "pictures", "x_text"]

AXES = {"length": "tokens", "block": "queries and keys of a tile", "share": "live share of the blocks"}
IMAGES = {curve: f"images/curves_{curve}.svg" for curve in AXES}
ORDER = ["standard", "bundled", "sdpa-flash", "paper-flash"]
QUANTITIES = {"ms": "time, ms", "bytes": "peak memory, MiB", "accesses": "accesses of one head, elements"}
_UNITS = {"ms": 1.0, "bytes": 2.0**20, "accesses": 1.0}


def medians(record: Record, curve: str, quantity: str, direction: str) -> dict[str, dict[float, float]]:
    """The medians of a panel, in the unit of `QUANTITIES`; places without one are left out."""
    found: dict[str, dict[float, float]] = {}
    for series, places in record.of(curve, quantity, direction).items():
        for x, point in places.items():
            if point.median:
                found.setdefault(series, {})[x] = point.median / _UNITS[quantity]
    return found


def heading(quantity: str, direction: str) -> str:
    """What a panel shows, in words."""
    both = "forward and backward" if (quantity, direction) == ("bytes", "backward") else direction
    return f"{both.capitalize()}: {QUANTITIES[quantity]}"


def x_text(curve: str, x: float) -> str:
    """A place on the horizontal axis."""
    if curve == "share":
        return f"{x:.3g}"
    return f"{x / 1024:g}k" if x >= 1024 else f"{x:g}"


def pictures(record: Record) -> dict[str, str]:
    """An SVG by its path in docs, for every curve of which the record has something."""
    found = {}
    for curve, axis in AXES.items():
        panels = [
            chart(heading(quantity, direction), axis, curves, lambda x: x_text(curve, x), ORDER)  # noqa: B023
            for quantity in QUANTITIES
            for direction in ("forward", "backward")
            if (curves := medians(record, curve, quantity, direction))
        ]
        if panels:
            found[IMAGES[curve]] = document(f"Attention over {axis}", panels)
    return found

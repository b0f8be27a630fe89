"""The tables about elements: one row an output and dtype, and where errors moved most. Cells are plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.comparing.element_words import growth_text, share_text, ulp_text
from flashverify.judge.wording import ratio_text

if TYPE_CHECKING:
    from flashverify.comparing.elements import Elements

__all__ = ["HEAD", "PLACES_HEAD", "element_cells", "place_cells"]

HEAD = (
    "dtype",
    "output",
    "cases",
    "changed",
    "largest, ulp",
    "errors",
    "median",
    "p99",
    "p99.9",
    "worst",
    "bias moved by",
    "drift moved by",
)
"""`errors` is the mean growth of the root mean square error of a case; the ratios are those of elements; `!` is significant."""
PLACES_HEAD = ("output", "dtype", "axis", "value", "cases", "errors", "worst")
_MOST_PLACES = 8
_SHARES = (0.5, 0.99, 0.999)


def element_cells(elements: Elements) -> list[tuple[str, ...]]:
    """The table of outputs."""
    found = []
    for row in elements.rows:
        quantiles = [_moved(row.before.quantile(share), row.after.quantile(share)) for share in _SHARES]
        worst = (_moved(row.before.worst, row.after.worst),)
        drifts = (row.bias.text(), row.drift.text()) if row.changed else ("=", "=")
        size = (f"{row.cases:,}", share_text(row.changed, row.elements), ulp_text(row), growth_text(row))
        found.append((row.dtype, row.output, *size, *quantiles, *worst, *drifts))
    return found


def place_cells(elements: Elements) -> list[tuple[str, ...]]:
    """Where the errors moved most: over all outputs the axes and values whose cases grew or shrank farthest."""
    found = [
        (abs(place.growth.mean or 0.0), row, axis, value, place)
        for row in elements.rows
        for axis, value, place in row.moved_most
    ]
    found.sort(key=lambda each: (-each[0], each[1].output, each[2], each[3]))
    return [
        (
            row.output,
            row.dtype,
            axis,
            value,
            f"{place.growth.count:,}",
            f"x {2 ** (place.growth.mean or 0.0):.3g}",
            _moved(place.before, place.after),
        )
        for _, row, axis, value, place in found[:_MOST_PLACES]
    ]


def _moved(before: float, after: float) -> str:
    old, new = ratio_text(before), ratio_text(after)
    return old if old == new else f"{old} -> {new}"

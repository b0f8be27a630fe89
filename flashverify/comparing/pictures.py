"""The pictures of a comparison. Before and after differ by their dashes and markers as well as by colour."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flashverify.comparing.elements import BINS
from flashverify.report.figures import COLOURS, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

    from flashverify.comparing.elements import ElementRow, Histogram

__all__ = ["distribution", "growth_by_regime", "length_picture", "scatter", "ulp_picture"]

_BEFORE, _AFTER = COLOURS["series-5"], COLOURS["series-0"]
_LOW = -40
_PER_OCTAVE = 16
_FLOOR = 2.0**-20


def distribution(name: str, row: ElementRow) -> str:
    """How many of the elements have a ratio of each size, before and after; one line is drawn over the other where nothing changed."""

    def draw(plot: Plot) -> None:
        for side, colour, dash in ((row.before, _BEFORE, "-"), (row.after, _AFTER, (0, (4, 2)))):
            sizes, shares = _octaves(side)
            plot.step(sizes, shares, where="mid", color=colour, linewidth=1.6, linestyle=dash)
        plot.axvline(0, color=COLOURS["limit"], linewidth=1.0)
        plot.set_xlim(-20.5, 4.5)
        plot.set_xticks([-20, -16, -12, -8, -4, 0, 4], [f"2^{n}" if n else "bound" for n in range(-20, 5, 4)])
        plot.set_ylim(0)
        plot.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        plot.grid(axis="y", color=COLOURS["grid"], linewidth=0.6)

    return drawn(name, f"{row.output} {row.dtype}: share of elements by error over bound, before and after", draw)


def _octaves(side: Histogram) -> tuple[list[int], list[float]]:
    """Shares by octave; everything below 2^-20 in the first."""
    whole = side.counts.reshape(BINS // _PER_OCTAVE, _PER_OCTAVE).sum(1) / max(side.count, 1)
    low = -20 - _LOW
    kept = np.concatenate([[whole[: low + 1].sum()], whole[low + 1 :]])
    return list(range(-20, -20 + len(kept))), kept.tolist()


def scatter(name: str, row: ElementRow) -> str:
    """The worst ratio of every case, after against before; on the diagonal nothing changed."""

    def draw(plot: Plot) -> None:
        xs = [max(point.before, _FLOOR) for point in row.points]
        ys = [max(point.after, _FLOOR) for point in row.points]
        low = min([0.1, *xs, *ys])
        high = max([1.0, *(y for y in (*xs, *ys) if math.isfinite(y))]) * 1.3
        plot.plot([low, high], [low, high], color=COLOURS["muted"], linewidth=0.8, linestyle=(0, (2, 2)))
        plot.axhline(1.0, color=COLOURS["limit"], linewidth=1.0)
        plot.plot(xs, [min(y, high) for y in ys], "o", color=_AFTER, markersize=2.4, alpha=1.0, linestyle="none")
        plot.set_xscale("log")
        plot.set_yscale("log")
        plot.set_xlim(low, high)
        plot.set_ylim(low, high)
        plot.minorticks_off()
        plot.grid(color=COLOURS["grid"], linewidth=0.6)

    return drawn(
        name, f"{row.output} {row.dtype}: worst ratio of {len(row.points)} cases, before (across) and after (up)", draw
    )


def length_picture(name: str, row: ElementRow) -> str:
    """The mean of the worst ratios of cases against the longer sequence, before and after."""

    def draw(plot: Plot) -> None:
        buckets: dict[int, list[tuple[float, float]]] = {}
        for point in row.points:
            buckets.setdefault(max(point.length, 1).bit_length(), []).append((point.before, point.after))
        places = sorted(buckets)
        for side, colour, marker, dash in ((0, _BEFORE, "s", "-"), (1, _AFTER, "o", (0, (4, 2)))):
            ys = [float(np.mean([min(pair[side], 1e4) for pair in buckets[place]])) for place in places]
            plot.plot(range(len(places)), ys, color=colour, linewidth=1.4, linestyle=dash, marker=marker, markersize=3)
        step = max(1, math.ceil(len(places) / 7))
        plot.set_xticks(range(0, len(places), step), [str(2**place - 1) for place in places[::step]])
        plot.set_ylim(0)
        plot.grid(axis="y", color=COLOURS["grid"], linewidth=0.6)

    return drawn(name, f"{row.output} {row.dtype}: mean worst ratio by length, before and after", draw)


def ulp_picture(name: str, row: ElementRow) -> str:
    """How far the changed elements moved."""

    def draw(plot: Plot) -> None:
        powers = sorted(row.ulps)
        shares = [row.ulps[power] / row.elements for power in powers]
        plot.bar(powers, shares, width=0.8, color=_AFTER)
        step = max(1, math.ceil(len(powers) / 8))
        plot.set_xticks(powers[::step], [f"{2**power:,}" if power < 14 else f"2^{power}" for power in powers[::step]])
        plot.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        plot.grid(axis="y", color=COLOURS["grid"], linewidth=0.6)

    return drawn(name, f"{row.output} {row.dtype}: share of elements by change in ulp", draw)


def growth_by_regime(name: str, row: ElementRow) -> str:
    """By which factor the errors of the cases of each regime grew on average, and between which two values that may lie."""

    def draw(plot: Plot) -> None:
        found = sorted(
            ((value, place.growth) for (axis, value), place in row.where.items() if axis == "regime"),
            key=lambda each: each[1].mean or 0.0,
        )[-12:]
        for y, (_, growth) in enumerate(found):
            mean, radius = growth.mean or 0.0, min(growth.radius or 0.0, 4.0)
            plot.plot([mean - radius, mean + radius], [y, y], color=COLOURS["muted"], linewidth=1.0)
            plot.plot([mean], [y], "o", color=_AFTER, markersize=3.5)
        plot.axvline(0, color=COLOURS["ink"], linewidth=0.8)
        plot.set_yticks(range(len(found)), [value for value, _ in found], fontsize=7)
        ends = [
            abs(x)
            for _, g in found
            for x in ((g.mean or 0) - min(g.radius or 0, 4), (g.mean or 0) + min(g.radius or 0, 4))
        ]
        edge = max([0.5, *ends]) * 1.05
        plot.set_xlim(-edge, edge)
        plot.xaxis.set_major_formatter(lambda value, _: f"x {2**value:.2g}")
        plot.set_position((0.30, 0.15, 0.67, 0.81))
        plot.grid(axis="x", color=COLOURS["grid"], linewidth=0.6)

    return drawn(name, f"{row.output} {row.dtype}: growth of errors by regime of values", draw)

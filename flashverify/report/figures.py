"""Figures as inline SVG whose colours are the page's CSS variables, so that they follow light and dark.

The bytes depend on the data alone: no date, no random ids, no matplotlibrc.
"""

from __future__ import annotations

import html
import io
import math
import re
from typing import TYPE_CHECKING, Any

from flashverify.report.axes import BINS, bucket_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes as Plot

__all__ = ["COLOURS", "HEAT_LEVELS", "drawn", "heat_map", "length_curve"]

HEAT_LEVELS = (0.1, 0.25, 0.5, 1.0)
"""Upper ends of the first four levels; the fifth is everything above 1."""

_FLOOR, _CEILING = 1e-4, 1e4
COLOURS = {
    "ink": "#0a0b01",
    "muted": "#0a0b02",
    "grid": "#0a0b03",
    "limit": "#0a0b04",
    "surface": "#0a0b05",
    **{f"series-{n}": f"#0a0b1{n}" for n in range(6)},
    **{f"heat-{n}": f"#0a0b2{n}" for n in range(5)},
}
"""What matplotlib draws in; each becomes a CSS variable of the page."""
_SERIES_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), "-.", (0, (7, 2, 1, 2)), ":")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def length_curve(name: str, title: str, series: Mapping[str, Mapping[int, float]], colours: Mapping[str, int]) -> str:
    """Worst ratio against sequence length, one line per dtype.

    Args:
        name: unique on the page; prefixes the ids.
        title: text alternative.
        series: label -> length bucket -> worst ratio.
        colours: label -> number of its colour.
    """

    def draw(plot: Plot) -> None:
        buckets = sorted({bucket for line in series.values() for bucket in line})
        place = {bucket: x for x, bucket in enumerate(buckets)}
        for label, line in series.items():
            number = colours[label] % 6
            xs = [place[b] for b in sorted(line)]
            ys = [_shown(line[b]) for b in sorted(line)]
            style: Any = _SERIES_DASHES[number]
            plot.plot(
                xs,
                ys,
                color=COLOURS[f"series-{number}"],
                linestyle=style,
                linewidth=1.4,
                marker=_MARKERS[number],
                markersize=3,
                zorder=3,
            )
        values = [_shown(r) for line in series.values() for r in line.values()]
        plot.axhline(1.0, color=COLOURS["limit"], linewidth=1.0, zorder=2)
        plot.set_yscale("log")
        low, high = min([0.1, *values]), max([1.0, *values])
        plot.set_ylim(10 ** math.floor(math.log10(low)), 10 ** max(0.35, math.ceil(math.log10(high) - 1e-9)))
        plot.set_xlim(-0.4, max(0.4, len(buckets) - 0.6))
        _ticks(plot, _ends(buckets))
        plot.yaxis.set_major_formatter(
            lambda value, _: f"{value:g}" if 1e-3 <= value <= 1e3 else f"1e{round(math.log10(value))}"
        )
        plot.minorticks_off()
        plot.grid(axis="y", color=COLOURS["grid"], linewidth=0.6)

    return drawn(name, title, draw)


def heat_map(name: str, title: str, cells: Mapping[tuple[int, int], float], along: str) -> str:
    """Worst ratio by sequence length (y) and relative position of the worst element (x).

    Args:
        name: unique on the page; prefixes the ids.
        title: text alternative.
        cells: (length bucket, bin) -> worst ratio.
        along: what x runs along: `query row` or `key`.
    """

    def draw(plot: Plot) -> None:
        from matplotlib.patches import Rectangle

        buckets = sorted({bucket for bucket, _ in cells})
        place = {bucket: y for y, bucket in enumerate(buckets)}
        for (bucket, column), ratio in sorted(cells.items()):
            fill = COLOURS[f"heat-{_level(ratio)}"]
            plot.add_patch(Rectangle((column + 0.04, place[bucket] + 0.06), 0.92, 0.88, facecolor=fill, linewidth=0))
        plot.set_xlim(0, BINS)
        plot.set_ylim(0, max(1, len(buckets)))
        plot.set_xticks([0, BINS / 2, BINS], ["first", along, "last"])
        first, _, last = plot.get_xticklabels()
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
        step = max(1, math.ceil(len(buckets) / 9))
        plot.set_yticks([y + 0.5 for y in range(len(buckets))][::step], _ends(buckets)[::step])

    return drawn(name, title, draw)


def _ends(buckets: list[int]) -> list[str]:
    """The largest length of each bucket."""
    return [bucket_text(bucket).split("–")[-1] for bucket in buckets]


def _shown(ratio: float) -> float:
    """Inside the axis: zero at its floor, infinity and NaN at its ceiling."""
    return _CEILING if math.isnan(ratio) else min(max(ratio, _FLOOR), _CEILING)


def _level(ratio: float) -> int:
    return next((n for n, end in enumerate(HEAT_LEVELS) if ratio <= end), len(HEAT_LEVELS))


def _ticks(plot: Plot, labels: list[str]) -> None:
    """At most six labels, the last one always, so that they do not run into each other."""
    step = max(1, math.ceil(len(labels) / 6))
    places = list(range(len(labels) - 1, -1, -step))[::-1]
    plot.set_xticks(places, [labels[p] for p in places])


def drawn(name: str, title: str, draw: Callable[[Plot], None]) -> str:
    """The figure that `draw` draws, as an `svg` element.

    Args:
        name: unique on the page; prefixes the ids.
        title: text alternative.
        draw: draws in `COLOURS` alone.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {"svg.hashsalt": "flashverify", "svg.fonttype": "none", "font.size": 7.5, "path.simplify": False}
        )
        figure = Figure(figsize=(3.3, 2.0), layout=None)
        figure.patch.set_alpha(0)
        plot = figure.add_axes((0.15, 0.15, 0.82, 0.81))
        plot.patch.set_alpha(0)
        draw(plot)
        for side in plot.spines.values():
            side.set_visible(False)
        plot.tick_params(length=0, labelcolor=COLOURS["muted"])
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(buffer.getvalue(), name, title)


def _inline(svg: str, name: str, title: str) -> str:
    """The `svg` element alone: ids made unique, colours made CSS variables, a text alternative, nothing that points outside."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(?::\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    view = re.search(r'viewBox="[^"]*"', svg)
    opening = f'<svg class="plot" role="img" aria-label="{html.escape(title)}" {view.group() if view else ""}>'
    return re.sub(r"\s*\n\s*", "\n", opening + svg[svg.index(">") + 1 :].strip())

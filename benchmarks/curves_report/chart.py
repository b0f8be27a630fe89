"""One panel of curves on two logarithmic axes, as SVG. Series differ by dash and mark, not by colour alone."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HEIGHT", "WIDTH", "chart", "document"]

WIDTH, HEIGHT = 640, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 44, 54
_STYLE = """
  svg { --page: #fff; --ink: #1b1f24; --muted: #5d6570; --grid: #dfe2e6; --c0: #8a3a00; --c1: #1b6ca8; --c2: #2f7d4f; --c3: #77479b; }
  @media (prefers-color-scheme: dark) {
    svg { --page: #1a1d21; --ink: #e7e9ec; --muted: #aab2bc; --grid: #343a41; --c0: #ffb27a; --c1: #7dbdf0; --c2: #86d6a5; --c3: #cda6ec; }
  }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; font-size: 16px; fill: var(--ink); }
  .big { font-size: 19px; font-weight: 600; } .muted { fill: var(--muted); } .grid { stroke: var(--grid); stroke-width: 1; }
  path { fill: none; stroke-width: 2.4; stroke-linejoin: round; }
""".strip()
_DASHES = ("", "9 5", "2 4", "12 4 2 4")


def document(title: str, panels: list[list[str]]) -> str:
    """Panels under each other; the same for the same panels."""
    height = HEIGHT * len(panels)
    body = "\n".join(
        f'<g transform="translate(0 {HEIGHT * n})">\n' + "\n".join(panel) + "\n</g>" for n, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">\n'
        f'<title id="title">{html.escape(title)}</title>\n<style>\n  {_STYLE}\n</style>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="var(--page)"/>\n{body}\n</svg>\n'
    )


def chart(
    title: str, axis: str, curves: dict[str, dict[float, float]], x_text: Callable[[float], str], order: list[str]
) -> list[str]:
    """One panel.

    Args:
        title: what stands on the vertical axis.
        axis: what stands on the horizontal one.
        curves: by series, positive values at positive places.
        x_text: a place in words.
        order: of the series; the place in it decides dash, mark and colour.
    """
    xs = sorted({x for curve in curves.values() for x in curve})
    ys = [y for curve in curves.values() for y in curve.values()]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    high = max(high, low + 1)
    wide, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    first, span = math.log2(xs[0]), (math.log2(xs[-1]) - math.log2(xs[0])) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + wide * (math.log2(x) - first) / span,
            _TOP + tall * (high - math.log10(y)) / (high - low),
        )

    found = [f'<text x="8" y="24" class="big">{html.escape(title)}</text>']
    for power in range(low, high + 1):
        y = place(xs[0], 10.0**power)[1]
        found.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        found.append(f'<text x="{_LEFT - 8}" y="{y + 5:.1f}" text-anchor="end" class="muted">{_power(power)}</text>')
    for x in xs:
        at = place(x, 10.0**low)[0]
        found.append(
            f'<text x="{at:.1f}" y="{HEIGHT - 32}" text-anchor="middle" class="muted">{html.escape(x_text(x))}</text>'
        )
    found.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{html.escape(axis)}</text>')
    for n, name in enumerate(name for name in order if name in curves):
        number = order.index(name)
        style = f'style="stroke: var(--c{number % 4})" stroke-dasharray="{_DASHES[number % 4]}"'
        points = [place(x, y) for x, y in sorted(curves[name].items())]
        found.append(f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}" {style}/>')
        found += [_mark(number, x, y) for x, y in points]
        left = 8 + 155 * n
        found.append(f'<path d="M{left} {HEIGHT - 15} h30" {style}/>' + _mark(number, left + 15, HEIGHT - 15))
        found.append(f'<text x="{left + 36}" y="{HEIGHT - 10}">{html.escape(name)}</text>')
    return found


def _mark(number: int, x: float, y: float) -> str:
    fill = f'style="fill: var(--c{number % 4})"'
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {fill}/>',
        f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" {fill}/>',
        f'<polygon points="{x:.1f},{y - 6:.1f} {x - 5.5:.1f},{y + 4:.1f} {x + 5.5:.1f},{y + 4:.1f}" {fill}/>',
        f'<polygon points="{x:.1f},{y - 6:.1f} {x - 6:.1f},{y:.1f} {x:.1f},{y + 6:.1f} {x + 6:.1f},{y:.1f}" {fill}/>',
    )
    return shapes[number % 4]


def _power(power: int) -> str:
    """A power of ten in few characters."""
    if -2 <= power <= 4:
        return f"{10.0**power:g}"
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))

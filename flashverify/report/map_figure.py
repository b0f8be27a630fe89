"""The map of the failing elements as inline SVG in the colours of the page."""

from __future__ import annotations

import html
from itertools import groupby
from typing import TYPE_CHECKING

from flashverify.campaign.card.map_text import map_caption
from flashverify.judge.wording import visible
from flashverify.judge.wrong_map import ALL, MOST_ACROSS, MOST_DOWN, NONE

if TYPE_CHECKING:
    from flashverify.judge.wrong_map import WrongMap

__all__ = ["wrong_map_svg"]

_CELL, _LEAST = 12, 24
"""Pixels of a cell where there is room, and of the whole map at least."""


def wrong_map_svg(found: WrongMap | None) -> str:
    """The `svg` element; empty of no map."""
    if found is None:
        return ""
    lines = [line[:MOST_ACROSS] for line in found.cells[:MOST_DOWN]]
    width = max(1, *map(len, lines))
    title = html.escape(visible(f"Map of the failing elements of {map_caption(found)}"))
    parts = [
        f'<svg class="map" role="img" aria-label="{title}" viewBox="0 0 {width} {len(lines)}" preserveAspectRatio="none" '
        f'style="width:{max(_LEAST, width * _CELL)}px;height:{max(_LEAST, len(lines) * _CELL)}px">',
        f'<rect class="right" width="{width}" height="{len(lines)}"/>',
    ]
    for y, line in enumerate(lines):
        x = 0
        for level, run in groupby(map(_level, line)):
            length = len(list(run))
            if level != NONE:
                opacity = f"{0.25 + 0.75 * level / ALL:.2f}"
                parts.append(
                    f'<rect class="wrong" x="{x}" y="{y}" width="{length}" height="1" fill-opacity="{opacity}"/>'
                )
            x += length
    return "".join([*parts, "</svg>"])


def _level(cell: str) -> int:
    """A damaged cell counts as wrong."""
    return "0123456789".find(cell) if cell in "0123456789" else ALL

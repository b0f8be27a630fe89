"""A comparison as one HTML file: no script, nothing fetched, every foreign text escaped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import flashverify.report
from flashverify.comparing import pictures
from flashverify.comparing.element_table import HEAD, PLACES_HEAD, element_cells, place_cells
from flashverify.comparing.said import TITLES
from flashverify.comparing.speed.speed_words import HEAD as HEAD_OF_SPEED
from flashverify.comparing.speed.speed_words import NOTE, speed_cells, summary
from flashverify.judge import wording

if TYPE_CHECKING:
    from flashverify.comparing.comparison import Comparison
    from flashverify.comparing.elements import ElementRow

__all__ = ["to_html"]

_PICTURED = 12
"""Rows that get pictures, those that moved most."""
_LEVELS = {"do not merge": ("findings", "✕"), "look": ("none", "!"), "may merge": ("clean", "✓")}


class _Pictured(NamedTuple):
    """A row and its pictures, each with a caption."""

    row: ElementRow
    panels: list[tuple[str, str]]


def to_html(comparison: Comparison) -> str:
    """The page."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(
            [Path(__file__).parent / "templates", Path(flashverify.report.__file__).parent / "templates"]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Foreign text is made visible wherever it is printed; markup of our own passes.
        finalize=lambda value: wording.visible(value) if type(value) is str else value,
    )
    environment.filters |= {
        "ratio": wording.ratio_text,
        "number": wording.count_text,
        "plural": wording.plural,
        "tied": _tied,
    }
    level, mark = _LEVELS[comparison.decision]
    elements = comparison.elements
    return environment.get_template("comparison.html.j2").render(
        comparison=comparison,
        title=TITLES[comparison.decision],
        level=level,
        mark=mark,
        head=HEAD,
        cells=element_cells(elements) if elements is not None else [],
        places_head=PLACES_HEAD,
        places=place_cells(elements) if elements is not None else [],
        speed=summary(comparison.speeds) if comparison.speeds is not None else "",
        speed_head=HEAD_OF_SPEED,
        speeds=speed_cells(comparison.speeds) if comparison.speeds is not None else [],
        speed_note=NOTE,
        pictured=_pictured(comparison),
        lines=lambda text: text.split("\n"),
    )


def _tied(cell: str) -> str:
    """A cell in which a number is not parted from its unit or mark by the end of a line."""
    for mark in (" !", " ms", " MiB", " %"):
        cell = cell.replace(mark, f"\N{NO-BREAK SPACE}{mark[1:]}")
    return cell.replace("x ", "x\N{NO-BREAK SPACE}")


def _pictured(comparison: Comparison) -> list[_Pictured]:
    if comparison.elements is None:
        return []
    rows = [row for row in comparison.elements.rows if row.changed and row.points]
    rows.sort(key=lambda row: -abs(row.growth.mean or 0.0))
    found = []
    for number, row in enumerate(rows[:_PICTURED]):
        panels = [
            ("Elements by error over bound", pictures.distribution(f"d{number}", row)),
            ("Worst ratio of a case: after (up) against before", pictures.scatter(f"s{number}", row)),
            ("Mean worst ratio by length", pictures.length_picture(f"l{number}", row)),
            ("Change of an element, in ulp", pictures.ulp_picture(f"u{number}", row)),
            ("Growth of errors by regime of values", pictures.growth_by_regime(f"r{number}", row)),
        ]
        found.append(_Pictured(row, panels))
    return found

"""The tables of docs/speed.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from speed_rows.row import Timed

__all__ = ["page"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "speed.md"
_BEGIN, _END = "<!-- tables: python benchmarks/speeds.py page FILE --write -->", "<!-- end of the tables -->"
_UNITS = {
    "TFLOP/s": "TFLOP/s",
    "share of a copy": "Share of the bandwidth of a copy of the bytes that the kernel must read",
    "of the dense time for each pair": "Time for each visible pair, beside the dense kernel's",
    "us of CPU time": "Microseconds of CPU time a call",
}


def page(found: Sequence[Timed], *, write: bool) -> int:
    """Print the page with the tables of a record, or write it."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    themes = dict.fromkeys(each.theme for each in found)
    tables = "\n".join(_table(theme, [each for each in found if each.theme == theme]) for theme in themes)
    text = f"{before}{_BEGIN}\n\n{tables}\n{_END}{rest.split(_END)[1]}"
    if write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def _table(theme: str, rows: Sequence[Timed]) -> str:
    """A theme: a line a row, a column a call, in the unit; the median in milliseconds of the first call behind it."""
    good = [row for row in rows if not row.reason]
    names = list(dict.fromkeys(name for row in good for name in row.values))
    unit = _UNITS[good[0].unit] if good else ""
    against = ["bundled / cuDNN"] if "cuDNN" in names else []
    lines = [
        f"## {theme}",
        f"{unit}.",
        "",
        _line(["", *names, *against, "ms"]),
        _line(["---"] * (len(names) + len(against) + 2)),
    ]
    for row in rows:
        if row.reason:
            lines.append(_line([row.name, *[""] * (len(names) + len(against)), row.reason]))
            continue
        cells = [_number(row.values.get(name)) for name in names]
        ratio = (
            [_number(row.values["bundled"] / row.values["cuDNN"] if "cuDNN" in row.values else None)] if against else []
        )
        lines.append(_line([row.name, *cells, *ratio, _number(row.milliseconds["bundled"])]))
    return "\n".join([*lines, ""])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

"""The map of the failing elements as text, at most 80 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.judge.wording import plural
from flashverify.judge.wrong_map import ALL, MOST_ACROSS, MOST_DOWN, NONE

if TYPE_CHECKING:
    from flashverify.judge.wrong_map import WrongMap

__all__ = ["LEGEND", "map_caption", "map_lines", "map_place", "tells"]

LEGEND = "'.' right, '+' partly wrong, '#' wrong"
"""What the marks of `map_lines` say."""

_NAMES = {"row": ("query row", "query rows"), "head": ("head", "heads of all sequences")}


def tells(found: WrongMap) -> bool:
    """Whether there is anything to see: not all cells are alike."""
    return len(set("".join(found.cells))) > 1


def map_caption(found: WrongMap) -> str:
    """What runs where, and how much a cell holds."""
    right = f"{_axis(found.across, found.width, found.wide)} to the right"
    down = f", {_axis(found.down, found.height, found.high)} downwards" if found.height > 1 else ""
    return f"{found.output}: {right}{down}"


def _axis(name: str, size: int, cell: int) -> str:
    one, many = _NAMES.get(name, (name, f"{name}s"))
    return plural(size, one, many) + (f" in steps of {cell}" if cell > 1 else "")


def map_place(map_case: str, case: str) -> str:
    """In which case of a finding the map was made; `case` is the finding's own."""
    return "in this case" if map_case == case else "in the case that showed it first"


def map_lines(found: WrongMap) -> list[str]:
    """A line for each line of cells, after the number of its first head, channel or row; `LEGEND` says what the marks are."""
    label = found.down if found.height > 1 else ""
    cells = [line[:MOST_ACROSS] for line in found.cells[:MOST_DOWN]]
    width = len(str(found.height - 1))
    names = [f"{label} {n * found.high:>{width}} " if label else "" for n in range(len(cells))]
    return [name + "".join(map(_mark, line)) for name, line in zip(names, cells, strict=True)]


def _mark(cell: str) -> str:
    return "." if cell == str(NONE) else "#" if cell == str(ALL) else "+"

"""The map of the failing elements as text, at most 80 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.judge.wording import plural
from flashverify.judge.wrong_map import ALL, NONE

if TYPE_CHECKING:
    from flashverify.judge.wrong_map import WrongMap

__all__ = ["LEGEND", "drawn", "map_caption", "map_lines"]

LEGEND = "'.' right, '+' partly wrong, '#' wrong"
"""What the marks of `map_lines` say."""

_NAMES = {"row": "query row", "key": "key", "head": "head", "channel": "channel", "bucket": "bucket"}


def drawn(found: WrongMap) -> bool:
    """Whether there is anything to see: more cells than one, and not all of them alike."""
    return len(set("".join(found.cells))) > 1


def map_caption(found: WrongMap) -> str:
    """What runs where, and how much a cell holds."""
    right = f"{_axis(found.across, found.width, found.wide)} to the right"
    down = f", {_axis(found.down, found.height, found.high)} downwards" if found.height > 1 else ""
    return f"{found.output}: {right}{down}"


def _axis(name: str, size: int, cell: int) -> str:
    return plural(size, _NAMES.get(name, name)) + (f" in steps of {cell}" if cell > 1 else "")


def map_lines(found: WrongMap) -> list[str]:
    """A line for each line of cells, after the number of its first head, channel or row; `LEGEND` says what the marks are."""
    label = found.down if found.height > 1 else ""
    width = len(str(found.height - 1))
    names = [f"{label} {n * found.high:>{width}} " if label else "" for n in range(len(found.cells))]
    return [name + "".join(map(_mark, line)) for name, line in zip(names, found.cells, strict=True)]


def _mark(cell: str) -> str:
    return "." if cell == str(NONE) else "#" if cell == str(ALL) else "+"

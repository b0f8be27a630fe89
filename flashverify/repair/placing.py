"""The lines of a stored repair, in the text of a file."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.judge.record import Repair

__all__ = ["lines_instead"]


def lines_instead(repair: Repair, lines: Sequence[str]) -> tuple[str, ...] | None:
    """The lines that take the place of those that a repair changes, with their margins; none for lines that go.

    Args:
        repair: it changes the lines from `repair.line` on.
        lines: of the file.

    Returns:
        None where the file does not hold the lines that are changed, or where no Python would come of it.
    """
    before, start = repair.before.split("\n"), repair.line - 1
    there = list(lines[start : start + len(before)])
    margin = there[0][: len(there[0]) - len(there[0].lstrip())] if there else ""
    if there != _indented(before, margin):
        return None
    after = repair.after.split("\n") if repair.after else []
    for instead in (after,) if after else ([], ["pass"]):  # a block needs a statement
        found = _indented(instead, margin)
        if _is_python("\n".join([*lines[:start], *found, *lines[start + len(before) :]])):
            return tuple(found)
    return None


def _indented(lines: list[str], margin: str) -> list[str]:
    return [margin + line if line else line for line in lines]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True

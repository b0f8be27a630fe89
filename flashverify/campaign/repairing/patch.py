"""A repair as a patch that `git apply` takes, and as lines of the file as it is."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.judge.record import Repair

__all__ = ["Placed", "patch_text", "placed"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A repair in the file as it stands on disk.

    Attributes:
        path: of the file.
        name: of it below the folder from which it was named.
        lines: of the file.
        count: of them, from `line` on, are replaced.
        line: the first one that is replaced, counted from 1.
        after: the lines that take their place, with their margins.
    """

    path: Path
    name: str
    lines: tuple[str, ...]
    line: int
    count: int
    after: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The lines of the file with the repair."""
        return (*self.lines[: self.line - 1], *self.after, *self.lines[self.line - 1 + self.count :])


def placed(repair: Repair, root: Path) -> Placed | None:
    """Where a repair stands in its file; None where no file of that name below `root` has those lines there, or no Python would come of it."""
    path = root / repair.file
    try:
        text = path.read_text(encoding="utf-8") if path.resolve().is_relative_to(root.resolve()) else ""
    except (OSError, ValueError):
        return None
    lines = tuple(text.split("\n"))
    before, start = repair.before.split("\n"), repair.line - 1
    there = lines[start : start + len(before)]
    margin = there[0][: len(there[0]) - len(there[0].lstrip())] if there else ""
    if list(there) != _indented(before, margin):
        return None
    after = repair.after.split("\n") if repair.after else []
    for lines_after in (after,) if after else ([], ["pass"]):  # where nothing else stands in its block
        found = Placed(path, repair.file, lines, repair.line, len(before), tuple(_indented(lines_after, margin)))
        if _is_python("\n".join(found.changed)):
            return found
    return None


def _with_ends(lines: tuple[str, ...]) -> list[str]:
    """The last one of `lines` is what follows the last line end."""
    return [f"{line}\n" for line in lines[:-1]] + [lines[-1]] * bool(lines[-1])


def _indented(lines: list[str], margin: str) -> list[str]:
    return [margin + line if line else line for line in lines]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def patch_text(found: Placed) -> str:
    """The patch, in unified form."""
    before, after = (_with_ends(lines) for lines in (found.lines, found.changed))
    made = difflib.unified_diff(before, after, f"a/{found.name}", f"b/{found.name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made)

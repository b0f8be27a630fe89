"""A repair as a patch that `git apply` takes, and as lines of the file as it is."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.repair.placing import lines_instead

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.judge.record import Repair

__all__ = ["Placed", "below", "patch_text", "placed"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A repair in the file as it stands on disk.

    Attributes:
        name: of the file, from the folder on in which it is looked for.
        lines: of the file.
        line: the first one that is replaced, counted from 1.
        count: of those that are replaced.
        after: the lines that take their place, with their margins.
    """

    name: str
    lines: tuple[str, ...]
    line: int
    count: int
    after: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The lines of the file with the repair."""
        return (*self.lines[: self.line - 1], *self.after, *self.lines[self.line - 1 + self.count :])


def below(root: Path, name: str) -> Path | None:
    """A file below a folder; None where it is none."""
    try:
        path = (root / name).resolve()
        return path if path.is_relative_to(root.resolve()) and path.is_file() else None
    except (OSError, ValueError):
        return None


def placed(repair: Repair, root: Path) -> Placed | None:
    """Where a repair stands in its file; None where no file of that name below `root` has those lines there, or no Python would come of it."""
    path = below(root, repair.file)
    try:
        text = path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, ValueError):
        return None
    lines = tuple(text.split("\n"))
    instead = lines_instead(repair, lines)
    return None if instead is None else Placed(repair.file, lines, repair.line, repair.before.count("\n") + 1, instead)


def _with_ends(lines: tuple[str, ...]) -> list[str]:
    """The last one of `lines` is what follows the last line end."""
    return [f"{line}\n" for line in lines[:-1]] + [lines[-1]] * bool(lines[-1])


def patch_text(found: Placed) -> str:
    """The patch, in unified form."""
    before, after = (_with_ends(lines) for lines in (found.lines, found.changed))
    made = difflib.unified_diff(before, after, f"a/{found.name}", f"b/{found.name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made)

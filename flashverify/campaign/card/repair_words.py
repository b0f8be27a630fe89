"""A repair in words, and the lines that it changes."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from flashverify.judge.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.judge.record import Repair

__all__ = [
    "diff_lines",
    "repair_effect",
    "repair_lines",
    "repair_note",
    "repair_place",
    "repair_title",
    "unmended_text",
]

_MOST_TITLE = 100
"""Characters of a title that quotes the changed line."""
_TAB = 4


def repair_place(repair: Repair) -> str:
    """Which line of which file is changed, and in which function that stands."""
    return f"{repair.file}:{repair.line} ({repair.function})"


def repair_title(repair: Repair) -> str:
    """What makes a subject right, in a line."""
    where = f"{repair.file}:{repair.line}"
    gone = [text.strip() for mark, text in _diff(repair) if mark == "-"]
    put_in = [text.strip() for mark, text in _diff(repair) if mark == "+"]
    if put_in:
        quoted = f"{where}: right with `{put_in[0]}`" if len(put_in) == 1 else ""
        otherwise = f"{repair_place(repair)}: right with one change"
    else:
        quoted = f"{where}: right without `{gone[0]}`" if len(gone) == 1 else ""
        otherwise = f"{repair_place(repair)}: right without {_these(len(gone))}"
    return quoted if quoted and len(quoted) <= _MOST_TITLE else otherwise


def repair_effect(repair: Repair) -> str:
    """How right the subject is with the lines that it changes, after `repair_place` and before `diff_lines`."""
    changed = "changed so" if repair.after else f"without {_these(repair.before.count(chr(10)) + 1)}"
    return f"{changed}, it is right in {_cases(repair)}"


def repair_note(repairs: Sequence[Repair]) -> str:
    """What a repair is not."""
    what = "a change that makes it right" if len(repairs) == 1 else "changes that make it right, each by itself"
    return f"{what}; not necessarily what was meant"


def unmended_text(why: str) -> str:
    """Why none was found, where the search for one ended early; empty where it did not."""
    return f"the search for one ended early: {why}" if why else ""


def diff_lines(repair: Repair) -> tuple[str, ...]:
    """The lines as they are, marked `- `, and as they would be, marked `+ `; lines between them that stay begin with blanks."""
    return tuple(f"{mark} {visible(text.expandtabs(_TAB))}" for mark, text in _diff(repair))


def repair_lines(repairs: Sequence[Repair]) -> Iterator[tuple[str, bool]]:
    """All of that, line by line, and whether a line may be wrapped."""
    for number, repair in enumerate(repairs):
        first = "or, by itself: " if number else "repair: "
        yield visible(f"{first}{repair_place(repair)} {repair_effect(repair)}:"), True
        for line in diff_lines(repair):
            yield f"  {line}", False
    if repairs:
        yield f"({repair_note(repairs)})", True


def _diff(repair: Repair) -> Iterator[tuple[str, str]]:
    """The lines of both, each with its mark."""
    before, after = repair.before.split("\n"), repair.after.split("\n") if repair.after else []
    for _, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        same = before[start:end] == after[new_start:new_end]
        yield from ((" " if same else "-", line) for line in before[start:end])
        yield from () if same else (("+", line) for line in after[new_start:new_end])


def _these(lines: int) -> str:
    return "this line" if lines == 1 else "these lines"


def _cases(repair: Repair) -> str:
    """On how many further cases, and how many of them fail without it."""
    if repair.cases == 1:
        return "1 further case, which fails without" if repair.failing else "1 further case"
    failing = "all of which fail" if repair.failing == repair.cases else f"of which {_failing(repair.failing)}"
    return f"{plural(repair.cases, 'further case')}, {failing} without"


def _failing(count: int) -> str:
    return f"{count:,} {'fails' if count == 1 else 'fail'}"

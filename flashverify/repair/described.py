"""A repair as it is stored and said: the lines that it changes, before and after."""

from __future__ import annotations

import ast
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.judge.record import Repair

if TYPE_CHECKING:
    from flashverify.repair.candidates import Candidate

__all__ = ["described", "shown"]


def described(candidate: Candidate, cases: int, failing: int) -> Repair:
    """The record of a repair.

    Args:
        candidate: the edit.
        cases: further ones on which the subject is right with it.
        failing: how many of them fail without it.
    """
    text, edit = candidate.ran.source.text, candidate.edit
    start = text.rfind("\n", 0, edit.start) + 1
    end = text.find("\n", edit.end)
    end = len(text) if end < 0 else end
    before = text[start:end]
    new = _without_parentheses(candidate)
    after = text[start : edit.start] + new + text[edit.end : end]
    lines = [line for line in after.split("\n") if line.partition("#")[0].strip() not in ("", "pass")]
    return Repair(
        file=shown(candidate.ran.file),
        line=text.count("\n", 0, start) + 1,
        function=candidate.ran.name,
        before=textwrap.dedent(before),
        after=textwrap.dedent("\n".join(lines)),
        cases=cases,
        failing=failing,
    )


def shown(file: Path) -> str:
    """A path from the working directory on where the file lies in it, else its last two parts."""
    path, here = file.resolve(), Path(os.getcwd()).resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(Path(*path.parts[-2:]))


def _without_parentheses(candidate: Candidate) -> str:
    """What an edit puts in, without parentheses that change nothing."""
    source, edit, new = candidate.ran.source, candidate.edit, candidate.edit.text
    top = candidate.ran.top
    start, end = source.position(top.lineno, top.col_offset), source.span(top)[1]

    def meaning(put_in: str) -> str | None:
        try:
            return ast.dump(ast.parse(source.text[start : edit.start] + put_in + source.text[edit.end : end]))
        except SyntaxError:
            return None

    meant = meaning(new)
    at = new.find("(")
    while at >= 0 and meant is not None:
        closing = _closing(new, at)
        fewer = f"{new[:at]}{new[at + 1 : closing]}{new[closing + 1 :]}"
        if closing > 0 and meaning(fewer) == meant:
            new = fewer
            at = new.find("(", at)
        else:
            at = new.find("(", at + 1)
    return new


def _closing(text: str, at: int) -> int:
    """Where the parenthesis that opens at a place is closed; -1 where it is not."""
    depth = 0
    for place, character in enumerate(text[at:], at):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place
    return -1

"""Markdown: foreign text in which nothing is markup, tables, folded parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.judge.wording import ratio_text, tone, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["code", "fence", "folded", "ratio_cell", "table", "words"]


def code(text: str, *, limit: int = 2000) -> str:
    """A Markdown code span of `text` on one line: nothing in it is markup, a mention or a link."""
    plain = visible(text)
    plain = (plain if len(plain) <= limit else plain[: limit - 1] + "…") or " "
    marks = "`" * (_longest_run(plain) + 1)
    pad = " " if plain.strip() != plain or "`" in plain or not plain.strip() else ""
    return f"{marks}{pad}{plain}{pad}{marks}"


def words(text: str) -> str:
    """A sentence that may carry a foreign name: plain Markdown where every character is harmless, a code span otherwise."""
    plain = visible(text)
    harmless = (
        all(c.isalnum() or c in " .,:;()/%+-'’–?=>" for c in plain)
        and not plain.startswith(("=", ">"))
        and "://" not in plain
        and "www." not in plain.lower()
    )
    return plain if harmless else code(plain)


def fence(text: str, language: str = "") -> str:
    """A fenced Markdown block that `text` cannot end."""
    plain = "\n".join(visible(line) for line in text.split("\n"))
    marks = "`" * max(3, _longest_run(plain) + 1)
    return f"{marks}{language}\n{plain}\n{marks}"


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table whose cells are safe already; the first `left` columns are left-aligned."""
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(":--" if n < left else "--:" for n in range(len(head))) + "|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def folded(title: str, body: str) -> str:
    """A part that is closed until it is asked for."""
    return f"<details><summary>{words(title)}</summary>\n\n{body}\n\n</details>"


def ratio_cell(ratio: float | None) -> str:
    """A ratio, in bold where it is beyond its limit."""
    text = ratio_text(ratio)
    return f"**{text}**" if tone(ratio) == "over" else text

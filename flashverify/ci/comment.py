"""A comment for a pull request: the verdict, what the baseline says, and the report, in Markdown below GitHub's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.report.markdown import render_markdown
from flashverify.report.markdown_text import folded, words

if TYPE_CHECKING:
    from flashverify.ci.outcome import Outcome

__all__ = ["MARKER", "MOST_COMMENT", "comment", "marked"]

MARKER = "<!-- flashverify -->"
"""First line of every comment, by which a workflow finds the one to replace."""
MOST_COMMENT = 65_536
"""Characters of a comment."""
_MARKS = {0: "✅", 1: "❌"}
_MOST_LINES = 20


def marked(text: str) -> str:
    """Markdown as a comment, cut at a line where it is too long."""
    whole = f"{MARKER}\n{text.strip()}\n"
    if len(whole) <= MOST_COMMENT:
        return whole
    note = "\n\n*The rest is left out for length.*\n"
    return whole[: MOST_COMMENT - len(note)].rsplit("\n", 1)[0] + note


def comment(outcome: Outcome) -> str:
    """The comment about a run."""
    report = render_markdown(outcome.report)
    if outcome.held is None:
        return marked(report)
    lines = [f"- {words(line)}" for line in outcome.held.lines()]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"- and {len(lines) - _MOST_LINES} more"]
    head = f"# {_MARKS.get(outcome.exit_code, '⚠️')} {words(outcome.headline)}"
    whole = folded("The run itself, without the baseline", report)
    return marked("\n\n".join([head, "\n".join(lines), whole]))

"""A comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.comparing.change import LISTED
from flashverify.comparing.element_table import HEAD, PLACES_HEAD, element_cells, place_cells
from flashverify.comparing.said import TITLES, changed_lists, numbers, scope, shown_rows, single_lists
from flashverify.comparing.speed.speed_words import HEAD as HEAD_OF_SPEED
from flashverify.comparing.speed.speed_words import NOTE, speed_cells, summary
from flashverify.judge.wording import plural, ratio_text
from flashverify.report.markdown_text import code, table, words

if TYPE_CHECKING:
    from flashverify.comparing.comparison import Comparison

__all__ = ["to_markdown"]

_MARKS = {"do not merge": "❌", "look": "⚠️", "may merge": "✅"}
_MOST_ROWS = 60


def to_markdown(comparison: Comparison) -> str:
    """Markdown, the answer first; every foreign text is a code span."""
    parts = [f"# {_MARKS[comparison.decision]} {TITLES[comparison.decision]}"]
    parts += [f"{words(comparison.sentence)} {scope(comparison)}"]
    if comparison.reasons or comparison.notes:
        shown = [words(text) for text in (*comparison.reasons, *comparison.notes)]
        parts.append("\n".join(f"- {text}" for text in shown[:_MOST_ROWS]))
    for card in comparison.findings[:LISTED]:
        parts.append(
            f"## Finding: {words(card.title)}\n\n{code(card.record.verdict.message)}\n\nSmallest failing case: {code(card.record.case)}"
        )
    parts += _changes_markdown(comparison)
    if comparison.elements is not None and comparison.elements.rows:
        cells = [[code(a), code(b), *map(words, rest)] for a, b, *rest in element_cells(comparison.elements)]
        parts.append(
            f"## Elements of {plural(comparison.elements.measured, 'case')}\n\n" + table(list(HEAD), cells, left=2)
        )
    parts += _speed_markdown(comparison)
    if comparison.elements is not None and (places := place_cells(comparison.elements)):
        cells = [[*map(code, each[:4]), *map(words, each[4:])] for each in places]
        parts.append("## Errors moved most\n\n" + table(list(PLACES_HEAD), cells, left=4))
    if by_case := shown_rows(comparison):
        parts.append("## Worst ratios of cases")
        head = [
            "Subject",
            "Data type",
            "Output",
            "Mode",
            "Cases",
            "Worst before",
            "after",
            "change",
            "p99 before",
            "after",
            "change",
            "Bias moved by",
        ]
        cells = [
            [
                *(code(t) for t in (r.key.subject, r.key.dtype, r.key.output, r.key.mode)),
                f"{r.cases:,}",
                *numbers(r.worst),
                *numbers(r.p99),
                r.bias.text(),
            ]
            for r in by_case[:_MOST_ROWS]
        ]
        parts.append(table(head, cells, left=4))
    for title, changed in changed_lists(comparison):
        body = [
            [code(c.subject), code("; ".join(c.failures)), code(c.message, limit=300), code(c.case)]
            for c in changed[:LISTED]
        ]
        parts.append(
            f"## {title}: {plural(len(changed), 'case')}\n\n"
            + table(["Subject", "Failures", "First message", "Case"], body, left=4)
        )
    if comparison.movers:
        body = [
            [code(f"{m.output} {m.mode}"), ratio_text(m.before), ratio_text(m.after), code(m.subject), code(m.case)]
            for m in comparison.movers
        ]
        parts.append("## Moved most\n\n" + table(["Output", "Before", "After", "Subject", "Case"], body))
    for title, cases in single_lists(comparison):
        body = [[code(subject), code(case)] for subject, case in cases[:LISTED]]
        parts.append(f"## {title}: {plural(len(cases), 'case')}\n\n" + table(["Subject", "Case"], body, left=2))
    return "\n\n".join(parts) + "\n"


def _changes_markdown(comparison: Comparison) -> list[str]:
    parts = []
    if comparison.functions:
        names = [
            f"- {code(each.name)}" + ("" if each.change == "changed" else f" ({each.change})")
            for each in comparison.functions[:_MOST_ROWS]
        ]
        parts.append(f"## Changed code: {plural(len(comparison.functions), 'function')}\n\n" + "\n".join(names))
    elif comparison.functions is not None:
        parts.append("## Changed code: no function")
    if comparison.settings:
        body = [
            [code(n), code(old or "absent", limit=300), code(new or "absent", limit=300)]
            for n, (old, new) in comparison.settings.items()
        ]
        parts.append("## Changed settings\n\n" + table(["Setting", "Before", "After"], body[:_MOST_ROWS], left=3))
    return parts


def _speed_markdown(comparison: Comparison) -> list[str]:
    """Time and memory, where they were asked for."""
    if comparison.speeds is None:
        return []
    parts = [f"## Speed\n\n{words(summary(comparison.speeds))}"]
    if comparison.speeds.rows:
        cells = [[code(shape), *map(words, rest)] for shape, *rest in speed_cells(comparison.speeds)]
        parts += [table(list(HEAD_OF_SPEED), cells), NOTE]
    return ["\n\n".join(parts)]

"""The findings of a run in Markdown: an index, then a card each; all but the first are closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.card.map_text import map_caption, map_lines, map_place
from flashverify.campaign.card.repair_words import diff_lines, repair_effect, repair_note, repair_place
from flashverify.checks.registry import failure_title
from flashverify.judge.wording import count_text, duration_text, evidence_text, plural
from flashverify.report.markdown_text import code, fence, folded, ratio_cell, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.card.content import Card
    from flashverify.report.content import Report

__all__ = ["finding_sections"]

_MOST_FINDINGS = 20
_MOST_ROWS = 15


def finding_sections(report: Report) -> Iterator[str]:
    """The index, the cards, and the failures that no finding stands for yet."""
    shown = report.findings[:_MOST_FINDINGS]
    if not shown and not report.pending:
        return
    yield "## Findings"
    if len(shown) > 1:
        yield "\n".join(f"{n}. [{n}](#finding-{n}): {_index(card)}" for n, card in enumerate(shown, 1))
    for number, card in enumerate(shown, 1):
        yield _card(number, card)
    if len(report.findings) > len(shown):
        yield f"{len(report.findings) - len(shown):,} more are in report.html."
    if report.pending:
        rows = [
            [
                words(failure_title(key.check, key.error, key.output)),
                code(key.subject),
                code(key.dtype),
                count_text(bucket.count),
                code(bucket.case),
            ]
            for key, bucket in report.pending[:_MOST_ROWS]
        ]
        yield "Not yet made minimal:\n\n" + table(
            ["Failure", "Subject", "Data type", "Cases", "First case"], rows, left=3
        )


def _index(card: Card) -> str:
    key = card.record.key
    return f"{words(card.title)} ({code(key.subject)}, {code(key.dtype)}, {plural(card.record.count, 'case')})"


def _card(number: int, card: Card) -> str:
    head = f'<a id="finding-{number}"></a>\n\n### {number}. {words(card.title)}\n\n{code(card.record.verdict.message)}'
    body = "\n\n".join(_body(card))
    return f"{head}\n\n{body}" if number == 1 else f"{head}\n\n{folded('The card', body)}"


def _body(card: Card) -> Iterator[str]:
    record = card.record
    said = record.verdict
    facts = [
        ("What", "" if card.failure == card.title else words(card.failure)),
        ("Subject", code(record.key.subject)),
        ("Data type", code(record.key.dtype)),
        ("Check", code(", ".join(word for word in (said.check, said.mode) if word))),
        ("Diagnosis", words(card.diagnosis)),
        ("Only where", ", ".join(map(code, card.conditions))),
        ("It rests on", words(card.evidence)),
        ("Within bounds under", code(card.form) if card.form else ""),
        ("Where", words(card.place)),
        ("No repair", words(card.unmended)),
        ("Smallest failing case", card.since),
        ("Value", _value(card)),
        ("How sure", words(", ".join(card.sure))),
        ("Evidence from", words(evidence_text(record.evidence))),
        ("Cases", f"{count_text(record.count)}, first after {duration_text(record.seconds)}"),
        ("Also", words(card.members.summary) if card.members is not None else ""),
        ("Script", code(card.script) if card.script else ""),
    ]
    yield "\n".join(f"- {name}: {value}" for name, value in facts if value and value != code(""))
    if card.repairs:
        yield f"{repair_note(card.repairs).capitalize()}:"
    for number, repair in enumerate(card.repairs):
        yield f"{'or, by itself, ' if number else ''}{code(repair_place(repair))} {repair_effect(repair)}:"
        yield fence("\n".join(diff_lines(repair)), "diff")
    if card.map is not None:
        caption = f"{map_caption(card.map)}, {map_place(card.map_case, record.case)}"
        yield f"Map of {words(caption)}; `.` right, `+` partly wrong, `#` wrong:"
        yield fence("\n".join(map_lines(card.map)))
    yield f"{words(card.case_title)}:"
    yield fence(record.case)
    yield "Reproduce:"
    yield fence(card.replay, "sh")
    if said.traceback:
        yield folded("Traceback", fence(said.traceback))
    if card.members is not None:
        rows = [
            [
                words(m.failure),
                code(m.record.key.dtype),
                code(m.record.why),
                code(m.record.case),
                count_text(m.record.count),
            ]
            for m in card.members.members[:_MOST_ROWS]
        ]
        head = ["Failure", "Data type", "Why it is the same", "Case", "Cases"]
        yield folded("Failures of the same cause", table(head, rows, left=4))


def _value(card: Card) -> str:
    parts = [f"ratio {ratio_cell(card.ratio)}"] if card.ratio is not None else []
    if card.expected:
        parts = [f"got {card.got}", words(f"{card.exact}: {card.expected}"), f"bound on the error {card.bound}", *parts]
    return ", ".join(parts)

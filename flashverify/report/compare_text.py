"""A comparison as plain text, Markdown and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from flashverify.judge.wording import plural, ratio_text, visible
from flashverify.report.change import LISTED, Changed, Row
from flashverify.report.json_report import ratio_json
from flashverify.report.markdown_text import code, table, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.report.compare import Comparison

__all__ = ["to_json", "to_markdown", "to_text"]

_MARKS = {"do not merge": "❌", "look": "⚠️", "may merge": "✅"}
_TITLES = {"do not merge": "Do not merge", "look": "Look before merging", "may merge": "May merge"}
_MOST_ROWS = 60
_ONE_EACH = {
    "do not merge": "",
    "look": "No case newly fails.",
    "may merge": "No case newly fails, no ratio grew by more than 10 percent, no status changed.",
}


def to_text(comparison: Comparison) -> str:
    """Plain text, the answer first; nothing in it moves a terminal's cursor."""
    lines = [_TITLES[comparison.decision].upper(), *filter(None, [_ONE_EACH[comparison.decision]]), _scope(comparison)]
    lines += [f"  * {reason}" for reason in comparison.reasons] + [f"  ({note})" for note in comparison.notes]
    if comparison.rows:
        lines += ["", *_grid(comparison.rows)]
    for title, changed in _changed_lists(comparison):
        lines += ["", f"{title}: {plural(len(changed), 'case')}"]
        for item in changed[:LISTED]:
            lines += [f"  {item.subject}: {'; '.join(item.failures)}", f"    {item.case}"] + (
                [f"    {item.message}"] if item.message else []
            )
        lines += _more(changed)
    if comparison.movers:
        lines += ["", "Moved most:"]
        for mover in comparison.movers:
            lines.append(
                f"  {mover.output} {mover.mode}: {ratio_text(mover.before)} -> {ratio_text(mover.after)}  ({mover.subject})"
            )
            lines.append(f"    {mover.case}")
    for title, cases in _single_lists(comparison):
        lines += [
            "",
            f"{title}: {plural(len(cases), 'case')}",
            *(f"  {subject}: {case}" for subject, case in cases[:LISTED]),
            *_more(cases),
        ]
    if comparison.settings:
        lines += ["", "Changed settings:"]
        lines += [
            f"  {name}: {old or 'absent'} -> {new or 'absent'}" for name, (old, new) in comparison.settings.items()
        ]
    return "\n".join(map(visible, lines)) + "\n"


def to_markdown(comparison: Comparison) -> str:
    """Markdown, the answer first; every foreign text is a code span."""
    parts = [f"# {_MARKS[comparison.decision]} {_TITLES[comparison.decision]}"]
    parts += [" ".join(filter(None, [_ONE_EACH[comparison.decision], _scope(comparison)]))]
    if comparison.reasons or comparison.notes:
        shown = [words(text) for text in (*comparison.reasons, *comparison.notes)]
        parts.append("\n".join(f"- {text}" for text in shown[:_MOST_ROWS]))
    if comparison.rows:
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
        rows = [
            [
                *(code(t) for t in (r.key.subject, r.key.dtype, r.key.output, r.key.mode)),
                f"{r.cases:,}",
                *_numbers(r.worst),
                *_numbers(r.p99),
                r.bias.text(),
            ]
            for r in comparison.rows[:_MOST_ROWS]
        ]
        parts.append(table(head, rows, left=4))
    for title, changed in _changed_lists(comparison):
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
    for title, cases in _single_lists(comparison):
        body = [[code(subject), code(case)] for subject, case in cases[:LISTED]]
        parts.append(f"## {title}: {plural(len(cases), 'case')}\n\n" + table(["Subject", "Case"], body, left=2))
    if comparison.settings:
        body = [
            [code(n), code(old or "absent", limit=300), code(new or "absent", limit=300)]
            for n, (old, new) in comparison.settings.items()
        ]
        parts.append("## Changed settings\n\n" + table(["Setting", "Before", "After"], body[:_MOST_ROWS], left=3))
    return "\n\n".join(parts) + "\n"


def to_json(comparison: Comparison) -> str:
    """JSON; (subject, case) pairs as two-element lists."""
    document: dict[str, Any] = {"format": 1, "exit_code": comparison.exit_code}
    for name in ("decision", "reasons", "notes", "common", "judged", "only_before", "only_after", "settings"):
        document[name] = getattr(comparison, name)
    document["rows"] = [_row_json(row) for row in comparison.rows]
    document["movers"] = [
        asdict(m) | {"before": ratio_json(m.before), "after": ratio_json(m.after)} for m in comparison.movers
    ]
    document["newly_failing"] = [asdict(changed) for changed in comparison.newly_failing]
    document["newly_passing"] = [asdict(changed) for changed in comparison.newly_passing]
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _row_json(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = asdict(row.key) | {"cases": row.cases, "grew": row.grew, "drifted": row.drifted}
    found["bias"] = {"cases": row.bias.count, "mean": row.bias.mean, "radius": row.bias.radius}
    for name, (before, after) in (("worst", row.worst), ("p99", row.p99)):
        found[name] = {"before": ratio_json(before), "after": ratio_json(after)}
    return found


def _scope(comparison: Comparison) -> str:
    alone = [
        f"{len(cases):,} only {when}"
        for cases, when in ((comparison.only_before, "before"), (comparison.only_after, "after"))
        if cases
    ]
    rest = f" ({', '.join(alone)})" if alone else ""
    return f"{plural(comparison.common, 'common case')}, {comparison.judged:,} of them judged in both runs{rest}."


def _changed_lists(comparison: Comparison) -> Iterator[tuple[str, tuple[Changed, ...]]]:
    for title, changed in (("Newly failing", comparison.newly_failing), ("Newly passing", comparison.newly_passing)):
        if changed:
            yield title, changed


def _single_lists(comparison: Comparison) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    for title, cases in (
        ("Only in the earlier run", comparison.only_before),
        ("Only in the later run", comparison.only_after),
    ):
        if cases:
            yield title, cases


def _more(items: tuple[object, ...]) -> list[str]:
    return [f"  ... and {len(items) - LISTED:,} more"] if len(items) > LISTED else []


def _numbers(pair: tuple[float, float]) -> tuple[str, str, str]:
    """Before, after and the relative change."""
    before, after = pair
    return ratio_text(before), ratio_text(after), _change(before, after)


def _change(before: float, after: float) -> str:
    if before == after or (math.isnan(before) and math.isnan(after)):
        return "="
    if not math.isfinite(before) or not math.isfinite(after) or before <= 0:
        return "new" if before == 0 else "?"
    percent = 100 * (after / before - 1)
    return f"{percent:+.1f} %" if abs(percent) < 1000 else f"x {after / before:.3g}"


def _grid(rows: tuple[Row, ...]) -> list[str]:
    """Aligned columns; control characters are made visible first, so that they count as what they print as."""
    head = (
        "subject",
        "dtype",
        "output",
        "mode",
        "cases",
        "worst",
        "->",
        "change",
        "p99",
        "->",
        "change",
        "bias moved by",
    )
    body = [
        tuple(
            map(
                visible,
                (
                    r.key.subject,
                    r.key.dtype,
                    r.key.output,
                    r.key.mode,
                    f"{r.cases:,}",
                    *_numbers(r.worst),
                    *_numbers(r.p99),
                    r.bias.text(),
                ),
            )
        )
        for r in rows
    ]
    widths = [max(len(line[n]) for line in (head, *body)) for n in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if n < 4 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *body)
    ]

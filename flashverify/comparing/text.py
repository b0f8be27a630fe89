"""A comparison as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from flashverify.comparing.change import LISTED, Row
from flashverify.comparing.element_table import HEAD, PLACES_HEAD, element_cells, place_cells
from flashverify.comparing.said import TITLES, changed_lists, numbers, scope, shown_rows, single_lists
from flashverify.comparing.speed.speed_words import HEAD as HEAD_OF_SPEED
from flashverify.comparing.speed.speed_words import speed_cells, summary
from flashverify.judge.wording import plural, ratio_text, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.comparing.comparison import Comparison

__all__ = ["to_text"]


def to_text(comparison: Comparison) -> str:
    """Plain text, the answer first; nothing in it moves a terminal's cursor."""
    lines = [TITLES[comparison.decision].upper(), *_wrapped(comparison.sentence), scope(comparison)]
    lines += [f"  * {reason}" for reason in comparison.reasons] + [f"  ({note})" for note in comparison.notes]
    for card in comparison.findings[:LISTED]:
        lines += ["", f"Finding: {card.title}", f"  {card.record.case}", f"  {card.replay}"]
    lines += _changes(comparison)
    for title, changed in changed_lists(comparison):
        lines += ["", f"{title}: {plural(len(changed), 'case')}"]
        for item in changed[:LISTED]:
            lines += [f"  {item.subject}: {'; '.join(item.failures)}", f"    {item.case}"] + (
                [f"    {item.message}"] if item.message else []
            )
        lines += _more(changed)
    elements = comparison.elements if comparison.elements is not None and comparison.elements.rows else None
    if elements is not None:
        lines += ["", f"Elements of {plural(elements.measured, 'case')}:"]
        lines += _aligned(HEAD, element_cells(elements), left=2)
    lines += _speed(comparison)
    if elements is not None and (places := place_cells(elements)):
        lines += ["", "Errors moved most:", *_aligned(PLACES_HEAD, places, left=4)]
    if rows := shown_rows(comparison):
        lines += ["", "Worst ratios of cases:", *_grid(rows)]
    if comparison.movers:
        lines += ["", "Moved most:"]
        for mover in comparison.movers:
            lines.append(
                f"  {mover.output} {mover.mode}: {ratio_text(mover.before)} -> {ratio_text(mover.after)}  ({mover.subject})"
            )
            lines.append(f"    {mover.case}")
    for title, cases in single_lists(comparison):
        lines += [
            "",
            f"{title}: {plural(len(cases), 'case')}",
            *(f"  {subject}: {case}" for subject, case in cases[:LISTED]),
            *_more(cases),
        ]
    return "\n".join(map(visible, lines)) + "\n"


def _changes(comparison: Comparison) -> list[str]:
    """What changed at all: functions, then forms, evidence and environment."""
    lines = []
    if comparison.functions is not None:
        found = comparison.functions
        lines += ["", f"Changed code: {plural(len(found), 'function')}" if found else "Changed code: no function"]
        lines += [
            f"  {each.name}" + ("" if each.change == "changed" else f" ({each.change})") for each in found[:LISTED]
        ]
        lines += _more(found)
    if comparison.settings:
        lines += ["", "Changed settings:"]
        lines += [
            f"  {name}: {old or 'absent'} -> {new or 'absent'}" for name, (old, new) in comparison.settings.items()
        ]
    return lines


def _speed(comparison: Comparison) -> list[str]:
    """Time and memory, where they were asked for."""
    if comparison.speeds is None:
        return []
    first, *rest = _wrapped(f"Speed. {summary(comparison.speeds)}")
    table = _aligned(HEAD_OF_SPEED, speed_cells(comparison.speeds), left=1) if comparison.speeds.rows else []
    return ["", first, *rest, *table]


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, 110, break_long_words=False, break_on_hyphens=False)


def _more(items: tuple[object, ...]) -> list[str]:
    return [f"  ... and {len(items) - LISTED:,} more"] if len(items) > LISTED else []


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
                    *numbers(r.worst),
                    *numbers(r.p99),
                    r.bias.text(),
                ),
            )
        )
        for r in rows
    ]
    return _aligned(head, body, left=4)


def _aligned(head: tuple[str, ...], body: Sequence[tuple[str, ...]], *, left: int) -> list[str]:
    """Columns, the first `left` of them aligned at the left."""
    body = [tuple(map(visible, line)) for line in body]
    widths = [max(len(line[n]) for line in (head, *body)) for n in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if n < left else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, *body)
    ]

"""The card of a finding in a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from flashverify.campaign.card.map_text import LEGEND, map_caption, map_lines, map_place
from flashverify.campaign.card.repair_words import repair_lines, unmended_text
from flashverify.judge.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.campaign.card.content import Card
    from flashverify.judge.record import Diagnosis

__all__ = ["card_lines", "diagnosis_lines"]

_INDENT = "  "
_MOST_TRACEBACK = 20


def card_lines(card: Card, *, number: int = 0, width: int = 0) -> list[str]:
    """The card, line by line.

    Args:
        card: what it says.
        number: of the finding, put before its title; 0 for none.
        width: of the terminal; sentences are wrapped to it, but never what is copied from it. 0 wraps nothing.
    """
    title = f"{number}. {card.title}" if number else card.title
    return _wrapped(visible(title), "", width) + [
        line for text, wrap in _body(card) for line in (_wrapped(text, _INDENT, width) if wrap else [_INDENT + text])
    ]


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    if not width or len(indent + text) <= width:
        return [indent + text]
    inner = indent + _INDENT
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False
    )


def _body(card: Card) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it may be wrapped."""
    record = card.record
    key = record.key
    failure = [] if card.failure == card.title else [card.failure]
    yield visible(", ".join([*failure, key.subject, key.dtype, key.check, plural(record.count, "case")])), True
    yield visible(record.verdict.message), True
    if card.members is not None:
        yield visible(f"also: {card.members.summary}"), True
    for line in _traceback(record.verdict.traceback):
        yield _INDENT + visible(line), False
    if record.diagnosis is not None:
        yield from _diagnosis(record.diagnosis)
    if card.map is not None:
        where = map_place(card.map_case, record.case)
        yield visible(f"map: {map_caption(card.map)}, {where}; {LEGEND}"), True
        for line in map_lines(card.map):
            yield _INDENT + visible(line), False
    if card.since:
        yield f"smallest failing case: {card.since}", True
    yield f"how sure: {visible(_sure(card))}", True
    if record.not_minimal:
        yield visible(f"not minimal: {record.not_minimal}"), True
    yield visible(card.replay), False


def diagnosis_lines(found: Diagnosis | None) -> list[str]:
    """What explains a failure, what that rests on, under which conditions it shows, where, and what makes it right; nothing of what is not known."""
    return [] if found is None else [line for line, _ in _diagnosis(found)]


def _diagnosis(found: Diagnosis) -> Iterator[tuple[str, bool]]:
    name = f"{found.name}: " if found.name else ""
    facts = {
        "diagnosis: ": name * bool(found.sentence) + found.sentence,
        "only where: ": " and ".join(found.conditions),
        "evidence: ": found.evidence,
        "would be within bounds under ": found.form,
        "where: ": found.place,
        "no repair: ": "" if found.repairs else unmended_text(found.unmended),
    }
    yield from ((visible(label + text), True) for label, text in facts.items() if text)
    yield from repair_lines(found.repairs)


def _sure(card: Card) -> str:
    text = ", ".join(card.sure)
    if card.expected and card.got:
        text += f": got {card.got}, {card.exact} {card.expected}"
        text += f", bound {card.bound}" if card.bound else ""
    return text


def _traceback(text: str) -> list[str]:
    """Its last lines, where it was raised."""
    lines = text.splitlines()
    return (
        lines
        if len(lines) <= _MOST_TRACEBACK
        else [f"... {len(lines) - _MOST_TRACEBACK} lines", *lines[-_MOST_TRACEBACK:]]
    )

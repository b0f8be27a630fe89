"""The numerical form of a subject, which a run stores as one text, as the lines of a table."""

from __future__ import annotations

import re

__all__ = ["form_rows"]


def form_rows(form: str) -> list[tuple[str, str, str]]:
    """Part (`declared` or `assumed`), name and value of each property; of a text of another kind, one line with it as the value."""
    rows: list[tuple[str, str, str]] = []
    for text in re.split(r"; (?=\w+: )", form) if form else ():
        part, colon, properties = text.partition(": ")
        pairs = [pair.partition("=") for pair in re.split(r", (?=\w+=)", properties)] if colon else []
        if not all(name.isidentifier() and sign for name, sign, _ in pairs) or not pairs:
            return [("", "", form)]
        rows += [(part, name, value) for name, _, value in pairs]
    return rows

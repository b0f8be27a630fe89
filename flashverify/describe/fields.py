"""The fields of a declaration as Python text."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["default_texts", "field_texts", "value_text"]


def field_texts(declared: Any) -> dict[str, str]:
    """Every field of a `Supports`, a `Contract` or a `Form`, by name; a function by its name."""
    return {field.name: value_text(getattr(declared, field.name)) for field in dataclasses.fields(declared)}


def default_texts(kind: Any) -> dict[str, str]:
    """The defaults of one of these classes, by name."""
    return {field.name: value_text(field.default) for field in dataclasses.fields(kind)}


def value_text(value: Any) -> str:
    """A value as Python text; a function by its name, a set in order."""
    if callable(value):
        return str(getattr(value, "__qualname__", "a function"))
    return f"{{{', '.join(map(repr, sorted(value)))}}}" if isinstance(value, frozenset) else repr(value)

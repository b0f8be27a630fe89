"""Tensors in host memory."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from flashverify.case.problem import Pages, Problem

__all__ = ["on_cpu"]

T = TypeVar("T")


def on_cpu(value: T) -> T:
    """A tensor, a tuple of tensors or a problem with its pages, in host memory; anything else as it is."""
    found: Any = value
    if isinstance(value, Problem | Pages):
        moved = {field.name: on_cpu(getattr(value, field.name)) for field in dataclasses.fields(value)}
        found = dataclasses.replace(value, **moved)
    elif isinstance(value, tuple):
        found = tuple(on_cpu(item) for item in value)
    elif hasattr(value, "cpu"):
        found = value.cpu()
    moved_value: T = found
    return moved_value

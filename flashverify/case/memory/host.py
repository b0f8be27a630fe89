"""Tensors in host memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from flashverify.case.memory.transfers import to_host
from flashverify.case.problem import Pages, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["on_cpu"]

T = TypeVar("T")


def on_cpu(value: T) -> T:
    """A tensor, a tuple of such values or a problem with its pages, in host memory; anything else as it is. All tensors come in one copy."""
    found: T = _replaced(value, iter(to_host(list(_tensors(value)))))
    return found


def _parts(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in a value, in the order of `_replaced`."""
    if isinstance(value, Problem | Pages):
        value = tuple(_parts(value).values())
    if isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "cpu"):
        yield value


def _replaced(value: Any, tensors: Iterator[Any]) -> Any:
    if isinstance(value, Problem | Pages):
        return dataclasses.replace(value, **{name: _replaced(part, tensors) for name, part in _parts(value).items()})
    if isinstance(value, tuple):
        return tuple(_replaced(item, tensors) for item in value)
    return next(tensors) if hasattr(value, "cpu") else value

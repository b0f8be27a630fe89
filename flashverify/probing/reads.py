"""Which parts of a problem a subject looks at."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from flashverify.case.case import Case
from flashverify.case.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["reads_of", "watched"]

_OURS = (
    "dataclasses",
    "flashverify.case",
    "flashverify.checks",
    "flashverify.diagnosis",
    "flashverify.interpreter",
    "flashverify.judge",
    "flashverify.probing",
    "flashverify.subjects.function",
    "flashverify.truth",
)
"""Modules that look at a problem on behalf of the harness."""
_open: list[set[str]] = []


def _note(prefix: str, name: str) -> None:
    if _open and not name.startswith("__"):
        module = str(sys._getframe(2).f_globals.get("__name__", ""))
        if not any(module == ours or module.startswith(f"{ours}.") for ours in _OURS):
            _open[-1].add(prefix + name)


class _Case(Case):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        _note("case.", name)
        return object.__getattribute__(self, name)


class _Problem(Problem):
    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        _note("", name)
        return object.__getattribute__(self, name)


def watched(problem: Problem) -> Problem:
    """The same problem, whose readers are noted by `reads_of`."""
    fields = {field.name: getattr(problem, field.name) for field in dataclasses.fields(problem)}
    case = {field.name: getattr(problem.case, field.name) for field in dataclasses.fields(problem.case)}
    return _Problem(**fields | {"case": _Case(**case)})


@contextlib.contextmanager
def reads_of() -> Iterator[set[str]]:
    """Collects the names of the fields, properties and methods that code outside the harness looks at."""
    found: set[str] = set()
    _open.append(found)
    try:
        yield found
    finally:
        _open.remove(found)

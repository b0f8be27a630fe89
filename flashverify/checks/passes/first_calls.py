"""What a subject was asked first in this process: what it keeps for good is of one of these calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["first_calls", "noted"]

_MOST = 1000
"""Different cases that are kept of a subject."""
_CASES: WeakKeyDictionary[Any, dict[Case, None]] = WeakKeyDictionary()


def noted(subject: Subject, case: Case) -> None:
    """A subject is called with a problem of this case."""
    try:
        cases = _CASES.setdefault(subject, {})
    except TypeError:  # it cannot be referred to weakly, or has no hash
        return
    if len(cases) < _MOST:
        cases.setdefault(case)


def first_calls(subject: Subject) -> tuple[Case, ...]:
    """The cases in the order in which they were asked first."""
    try:
        return tuple(_CASES.get(subject, ()))
    except TypeError:
        return ()

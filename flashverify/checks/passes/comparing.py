"""Whether passes are compared. In a rehearsal they are made for their launches alone, over outputs that nobody computed."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["compares", "nothing_compared"]

_COMPARES = ContextVar("flashverify_compares", default=True)


def compares() -> bool:
    """Whether what passes return is looked at."""
    return _COMPARES.get()


@contextlib.contextmanager
def nothing_compared() -> Iterator[None]:
    """Until the end of the block no pass fails and none differs, so that every pass of a question is made."""
    before = _COMPARES.set(False)
    try:
        yield
    finally:
        _COMPARES.reset(before)

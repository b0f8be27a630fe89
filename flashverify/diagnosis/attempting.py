"""Parts of a diagnosis without which the rest stands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["attempted"]

_T = TypeVar("_T")


def attempted(what: str, ask: Callable[[], _T], otherwise: _T) -> _T:
    """What `ask` returns; `otherwise`, and a line on stderr, where it raises an exception."""
    try:
        return ask()
    except Exception as error:
        print(f"{what} failed: {type(error).__name__}: {error}", file=sys.stderr)
        return otherwise

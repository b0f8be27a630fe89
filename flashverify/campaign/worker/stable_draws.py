"""Draws that depend on their seed alone.

Hypothesis draws one number in twenty from constants, half of them out of the source of the modules that are imported at that moment. What
a batch holds would follow from what its worker had judged before, from the file of the subject and from every edit of it.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["stable_draws"]


@contextlib.contextmanager
def stable_draws() -> Iterator[None]:
    """Hypothesis knows no constants of modules meanwhile; a release that looks for none is left as it is."""
    try:
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants

        module: Any = providers
        collect, permitted = module._get_local_constants, module.CONSTANTS_CACHE
        kind: Any = type(permitted)
        stable = _permitted(kind)
    except (ImportError, AttributeError, TypeError):
        yield
        return
    none = Constants()
    module._get_local_constants, module.CONSTANTS_CACHE = lambda: none, stable
    try:
        yield
    finally:
        module._get_local_constants, module.CONSTANTS_CACHE = collect, permitted


@cache
def _permitted(kind: Any) -> Any:
    """By choice, the constants that it permits where modules have none: the same in every draw, and costly to list."""
    return kind(1024)

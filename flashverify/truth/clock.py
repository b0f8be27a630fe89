"""How long this process computed exact values and bounds: the oracle's share of a campaign's time."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    Timed = TypeVar("Timed", bound=Callable[..., Any])

__all__ = ["oracle_seconds", "timed"]


class _Clock:
    seconds = 0.0
    begun: float | None = None


def oracle_seconds() -> float:
    """Seconds so far, wall clock. What a GPU is still computing counts where it is waited for."""
    return _Clock.seconds


def timed(function: Timed) -> Timed:
    """The function with its time counted, once where timed functions call each other."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _Clock.begun is not None:
            return function(*args, **kwargs)
        _Clock.begun = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _Clock.seconds += time.perf_counter() - _Clock.begun
            _Clock.begun = None

    return cast("Timed", call)

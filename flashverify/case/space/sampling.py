"""Strategies that choose among values, each made once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

__all__ = ["one_in", "sampled_from"]


def sampled_from(values: Sequence[Any]) -> SearchStrategy[Any]:
    """One of `values`, earlier ones are simpler. The same values give the same strategy, whose preparation costs more than its draw.

    Args:
        values: at least one; strategies of unhashable values are not kept.
    """
    values = tuple(values)
    try:
        return _kept(values, repr(values))
    except TypeError:
        return st.sampled_from(values)


@lru_cache(maxsize=4096)
def _kept(values: tuple[Any, ...], _written: str) -> SearchStrategy[Any]:
    """`_written` tells values apart that are equal: 0, 0.0, -0.0 and False."""
    return st.sampled_from(values)


def one_in(n: int) -> SearchStrategy[bool]:
    """True about once in `n` draws; shrinks to false."""
    return sampled_from((False,) * (n - 1) + (True,))

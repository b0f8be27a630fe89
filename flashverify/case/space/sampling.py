"""Strategies that choose among values, each made once, and draws of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["choosing", "one_in", "sampled_from"]

_REMEMBERED = 4096
_kept: dict[tuple[tuple[Any, ...], str], SearchStrategy[Any]] = {}
_choices: dict[int, tuple[tuple[Any, ...], int]] = {}
"""By identity, what the strategies that are kept choose among, and their labels."""


def sampled_from(values: Sequence[Any]) -> SearchStrategy[Any]:
    """One of `values`, earlier ones are simpler. The same values give the same strategy, whose preparation costs more than its draw.

    Args:
        values: at least one; strategies of unhashable values are not kept.
    """
    values = tuple(values)
    key = (values, repr(values))  # which tells values apart that are equal: 0, 0.0, -0.0 and False
    try:
        found = _kept.get(key)
    except TypeError:
        return st.sampled_from(values)
    if found is None:
        if len(_kept) >= _REMEMBERED:
            _choices.clear()
            _kept.clear()
        found = _kept[key] = st.sampled_from(values)
        _choices[id(found)] = values, found.label
    return found


def one_in(n: int) -> SearchStrategy[bool]:
    """True about once in `n` draws; shrinks to false."""
    return sampled_from((False,) * (n - 1) + (True,))


def choosing(draw: Draw) -> Draw:
    """`draw` of a composite strategy, which takes of a kept strategy its one choice and does not keep all the books of a draw.

    The choices, their spans and what is drawn are the same.
    """
    data: Any = getattr(draw, "__self__", None)
    try:
        number, begin, end = data.draw_integer, data.start_span, data.stop_span
    except AttributeError:  # a release with another source of choices
        return draw

    def chosen(strategy: SearchStrategy[Any]) -> Any:
        values, label = _choices.get(id(strategy), ((), 0))
        if not values:
            return draw(strategy)
        begin(label=label)
        try:
            return values[number(0, len(values) - 1)] if len(values) > 1 else values[0]  # one value is no choice
        finally:
            end()

    return chosen

"""Draws of the values of a case: a regime for all heads, or one for each."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.case import REGIMES, Values
from flashverify.case.space.sampling import one_in, sampled_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    Draw = Callable[[SearchStrategy[Any]], Any]

__all__ = ["draw_values"]

_REGIMES = (*REGIMES, "normal", "normal", "v-positive")
"""Those that every defect of the arithmetic shows with are likelier than those built against one."""
_MIXED = 2
"""Of the cases with several heads one in so many has a regime for each."""
_MOST = 8
"""Regimes of a mixed case; more heads than these take them in turn, with seeds of their own."""


def draw_values(draw: Draw, heads: int) -> Values:
    """A regime and a seed, or as many regimes as there are heads, all different; as many choices for one head, so that fewer heads shrink.

    Args:
        draw: of hypothesis.
        heads: stored heads of k in all batch entries; 1 for a case that shall have one regime.
    """
    regime, mixed, order = draw(sampled_from(_REGIMES)), draw(one_in(_MIXED)), draw(st.integers(0, 2**16 - 1))
    if mixed and heads > 1:
        regime = ",".join(Random(order).sample(REGIMES, min(heads, _MOST)))
    return Values(regime=regime, seed=draw(st.integers(0, 255)))

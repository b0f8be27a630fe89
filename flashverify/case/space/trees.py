"""Strategies over trees of query nodes, given by their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

__all__ = ["trees"]

_DRAWN = 12
"""Parents that are drawn one by one; beyond it the drawn ones repeat as distances, so that a draw stays short."""


@st.composite
def trees(draw: Callable[[SearchStrategy[Any]], Any], nodes: int) -> tuple[int, ...]:
    """Parents of `nodes` nodes, each -1 or a smaller index: a chain, a star, a binary tree, single roots, or anything else."""
    kind = draw(st.sampled_from(("chain", "any", "any", "any", "star", "binary", "roots")))
    if kind == "any":
        steps = draw(st.lists(st.integers(0, _DRAWN), min_size=1, max_size=_DRAWN))
        return tuple(max(-1, node - 1 - steps[node % len(steps)]) for node in range(nodes))
    if kind == "star":
        return tuple(min(node - 1, 0) for node in range(nodes))
    if kind == "binary":
        return tuple((node - 1) // 2 for node in range(nodes))
    return tuple(node - 1 if kind == "chain" else -1 for node in range(nodes))

"""Strategies over trees of query nodes, given by their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from flashverify.case.masks.tree_shapes import draw_tree
from flashverify.case.space.draws import Choices

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

__all__ = ["trees"]


@st.composite
def trees(draw: Callable[[SearchStrategy[Any]], Any], nodes: int) -> tuple[int, ...]:
    """Parents of `nodes` nodes, each -1 or a smaller index."""
    return draw_tree(Choices(draw), nodes)

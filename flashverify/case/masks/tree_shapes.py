"""The shapes of trees of query nodes: drawn, and told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashverify.case.masks.part import Source

__all__ = ["draw_tree", "shape_of"]

_DRAWN = 12
"""Parents that are drawn one by one; beyond it the drawn ones repeat, so that a draw stays short."""
_SHAPES = ("chain", "levels", "levels", "levels", "trunk", "trunk", "any", "any", "star", "binary", "roots")
_TOP = (4, 3, 2, 8)
"""Candidates that a speculative decoder keeps of a node, on the first level and below."""


def draw_tree(source: Source, nodes: int) -> tuple[int, ...]:
    """Parents of `nodes` nodes, each -1 or a smaller index.

    Half of the shapes are those of speculative decoding, with a single root: levels, where a node of a level hangs at any one of the
    level above, the likelier ones first; and a trunk with branches, where each branch leaves an earlier node and goes on as a chain.
    The others are a chain, a star, a binary tree, roots alone, and distances at will.
    """
    kind = source.choice(_SHAPES)
    if kind == "levels":
        return _levels(source, nodes)
    if kind == "trunk":
        return _branches(source, nodes)
    if kind == "any":
        steps = source.integers(0, _DRAWN, least=1, most=_DRAWN)
        return tuple(max(-1, node - 1 - steps[node % len(steps)]) for node in range(nodes))
    if kind == "star":
        return tuple(min(node - 1, 0) for node in range(nodes))
    if kind == "binary":
        return tuple((node - 1) // 2 for node in range(nodes))
    return tuple(node - 1 if kind == "chain" else -1 for node in range(nodes))


def shape_of(tree: tuple[int, ...]) -> str:
    """`chain`, `star`, `binary`, `single root`, `roots` alone or `several roots`; `few nodes` for fewer than four."""
    if len(tree) < 4:
        return "few nodes"
    nodes = range(len(tree))
    if tree == tuple(node - 1 for node in nodes):
        return "chain"
    if tree == tuple(min(node - 1, 0) for node in nodes):
        return "star"
    if tree == tuple((node - 1) // 2 for node in nodes):
        return "binary"
    roots = tree.count(-1)
    return "single root" if roots == 1 else "roots" if roots == len(tree) else "several roots"


def _levels(source: Source, nodes: int) -> tuple[int, ...]:
    """Level by level from one root; the places of the parents on their level are drawn, and repeat."""
    width = source.choice(_TOP)
    places = sorted(source.integers(0, width - 1, least=1, most=_DRAWN))
    parents, above, first = [-1][:nodes], 0, 1
    while len(parents) < nodes:
        level = min(max(len(places), 2), nodes - first)
        parents += sorted(above + min(places[n % len(places)], first - above - 1) for n in range(level))
        above, first = first, first + level
    return tuple(parents)


def _branches(source: Source, nodes: int) -> tuple[int, ...]:
    """Chains that leave earlier nodes, all below one root."""
    lengths = source.integers(1, 6, least=1, most=_DRAWN)
    back = source.integers(1, _DRAWN, least=1, most=_DRAWN)
    parents, branch = [-1][:nodes], 0
    while len(parents) < nodes:
        leaves = max(len(parents) - back[branch % len(back)], 0)
        length = min(lengths[branch % len(lengths)], nodes - len(parents))
        parents += [leaves, *range(len(parents), len(parents) + length - 1)]
        branch += 1
    return tuple(parents)

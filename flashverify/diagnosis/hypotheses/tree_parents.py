"""Wrong semantics of trees whose parents are read otherwise: of a special number, of other nodes, or only some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.tree import ancestors, single_trees
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import tree, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Reads = Callable[[tuple[int, ...], int, int], int]
    """Of all parents, the first row of a tree and a node of it: the row, of all trees, whose ancestors the node sees; below 0 for none."""

__all__ = ["TREE_PARENTS"]

_DEPTHS = (2, 3, 4, 5, 6, 8, 16, 32)
"""Steps up a tree after which a kernel may stop; one step is a semantics of its own."""


def _by_rows(*all_reads: tuple[Reads, str]) -> Callable[[Scene], Iterator[Alternative]]:
    """A node sees itself and what another row, read in place of its parent's, sees."""

    def build(scene: Scene) -> Iterator[Alternative]:
        given = scene.case.mask.tree
        if given is None:
            return
        exact = ancestors(given, scene.case)
        trees = list(single_trees(given, scene.case.mask.packed))
        parents = tuple(parent for _, each in trees for parent in each)
        for reads, detail in all_reads:
            table = torch.zeros_like(exact)
            for first, each in trees:
                for node in range(len(each)):
                    row = reads(parents, first, node)
                    if 0 <= row < first + node:
                        table[first + node] = table[row]
                    table[first + node, node] = True
            if not torch.equal(table, exact):
                yield Alternative(inputs=with_parts(scene, tree=tree(scene, table)), detail=detail)

    return build


def _of(change: Callable[[int, int], int]) -> Reads:
    """By a function of the parent and the node, both numbered within the tree."""

    def reads(parents: tuple[int, ...], first: int, node: int) -> int:
        parent = change(parents[first + node], node)
        return first + parent if parent >= 0 else -1

    return reads


def _over_the_buffer(parents: tuple[int, ...], first: int, node: int) -> int:
    return parents[first + node]


def _of_the_first_tree(parents: tuple[int, ...], first: int, node: int) -> int:
    """The parent that the first tree gives the node, in the node's own tree."""
    parent = parents[node] if node < len(parents) else -1
    return first + parent if parent >= 0 else -1


def _neighbour(by: int) -> Reads:
    """The entry of parents beside the node's own."""

    def reads(parents: tuple[int, ...], first: int, node: int) -> int:
        at = first + node + by
        parent = parents[at] if 0 <= at < len(parents) else -1
        return first + parent if parent >= 0 else -1

    return reads


def _depth(scene: Scene) -> Iterator[Alternative]:
    """A walk up the tree that ends after so many steps."""
    given = scene.case.mask.tree
    if given is None:
        return
    exact, trees = ancestors(given, scene.case), list(single_trees(given, scene.case.mask.packed))
    for most in _DEPTHS:
        table = torch.zeros_like(exact)
        for first, parents in trees:
            for node in range(len(parents)):
                at = node
                for _ in range(most + 1):
                    if at < 0:
                        break
                    table[first + node, at] = True
                    at = parents[at]
        if not torch.equal(table, exact):
            yield Alternative(inputs=with_parts(scene, tree=tree(scene, table)), detail=f"{most} steps up")


def _nodes(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Scene], Iterator[Alternative]]:
    """Another table `[rows, nodes]`, by the declared one and the number of each row's node."""

    def build(scene: Scene) -> Iterator[Alternative]:
        given = scene.case.mask.tree
        if given is None:
            return
        exact = ancestors(given, scene.case)
        number = torch.zeros(len(exact), dtype=torch.int64)
        for first, parents in single_trees(given, scene.case.mask.packed):
            number[first : first + len(parents)] = torch.arange(len(parents))
        table = change(exact, number[:, None])
        if not torch.equal(table, exact):
            yield Alternative(inputs=with_parts(scene, tree=tree(scene, table)))

    return build


def _without_node_zero(table: Tensor, number: Tensor) -> Tensor:
    return table & ((torch.arange(table.shape[1]) > 0) | (number == 0))


TREE_PARENTS = (
    Semantics(
        name="tree-parent-zero-as-none",
        sentence="a tree node whose parent is node 0 is taken for a root: neither it nor its descendants see node 0",
        build=_by_rows((_of(lambda parent, _node: parent if parent > 0 else -1), "")),
    ),
    Semantics(
        name="tree-node-zero-missing",
        sentence="no tree node behind node 0 sees node 0",
        build=_nodes(_without_node_zero),
    ),
    Semantics(
        name="tree-roots-below-node-zero",
        sentence="a root of the tree is taken for a child of node 0: it and its descendants see node 0 too",
        build=_by_rows((_of(lambda parent, _node: max(parent, 0)), "")),
    ),
    Semantics(
        name="tree-roots-below-the-node-before",
        sentence="a root of the tree is taken for a child of the node before it",
        build=_by_rows((_of(lambda parent, node: parent if parent >= 0 else node - 1), "")),
    ),
    Semantics(
        name="tree-parent-off-by-one",
        sentence="the parent of a tree node is read off by one",
        build=_by_rows(
            (_of(lambda parent, _node: parent - 1), "the node before the parent"),
            (_of(lambda parent, node: min(parent + 1, node - 1) if parent >= 0 else -1), "the node behind the parent"),
        ),
        one_way=True,
    ),
    Semantics(
        name="tree-parent-of-neighbour",
        sentence="a tree node has the parent of another node",
        build=_by_rows((_neighbour(-1), "the one before"), (_neighbour(1), "the next one")),
        one_way=True,
    ),
    Semantics(
        name="tree-parents-over-the-buffer",
        sentence="parents of nodes are counted over all trees, not within their own: a node sees what a node of an earlier tree sees",
        build=_by_rows((_over_the_buffer, "")),
    ),
    Semantics(
        name="tree-parents-of-the-first-tree",
        sentence="the nodes of every tree have the parents of the first tree",
        build=_by_rows((_of_the_first_tree, "")),
    ),
    Semantics(
        name="tree-ancestors-up-to-a-depth",
        sentence="of its ancestors a tree node sees the nearest ones only, as many as steps are taken",
        build=_depth,
        one_way=True,
    ),
)

"""Wrong semantics of trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.patterns import bitmap_tensor
from flashverify.case.masks.tree import ancestors, has_entry_trees, single_trees
from flashverify.diagnosis.hypothesis import Alternative, Semantics
from flashverify.diagnosis.mask_tensors import parts, tree, with_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["TREES"]


def _tree(table: Callable[[Scene, Tensor], Tensor], *, part: bool = True) -> Callable[[Scene], Iterator[Alternative]]:
    def build(scene: Scene) -> Iterator[Alternative]:
        if scene.case.mask.tree is not None:
            exact = ancestors(scene.case.mask.tree, scene.case)
            yield Alternative(inputs=with_parts(scene, tree=tree(scene, table(scene, exact)) if part else None))

    return build


def _trees(scene: Scene) -> Iterator[tuple[int, tuple[int, ...]]]:
    """First row and parents of each tree."""
    yield from single_trees(scene.case.mask.tree or (), scene.case.mask.packed)


def _siblings(scene: Scene, table: Tensor) -> Tensor:
    table = table.clone()
    for first, parents in _trees(scene):
        for node, parent in enumerate(parents):
            for other in range(node):
                table[first + node, other] |= parents[other] == parent
    return table


def _previous(scene: Scene, table: Tensor) -> Tensor:
    table = table.clone()
    for first, parents in _trees(scene):
        for node in range(1, len(parents)):
            table[first + node, node - 1] = True
    return table


def _sees_the_one_before(scene: Scene) -> Iterator[Alternative]:
    """Of a bitmap, which kernels read as they read a tree: each row sees the key before the one of its own number."""
    yield from _tree(_previous)(scene)
    bits = bitmap_tensor(scene.case)
    if bits is not None and min(bits.shape[-2:]) and max(bits.shape[-2:]) > 1:
        row, key = torch.arange(bits.shape[-2])[:, None], torch.arange(bits.shape[-1])
        before = key == row - 1
        changed: dict[str, Tensor | None] = {"bitmap": bits | before}
        if scene.case.mask.tree is not None:  # the bits of both are one table
            changed["tree"] = parts(scene)["tree"] | before
        yield Alternative(inputs=with_parts(scene, **changed))


def _parents(scene: Scene, table: Tensor) -> Tensor:
    table = torch.zeros_like(table)
    for first, parents in _trees(scene):
        for node, parent in enumerate(parents):
            table[first + node, node] = True
            if parent >= 0:
                table[first + node, parent] = True
    return table


def _not_itself(scene: Scene, table: Tensor) -> Tensor:
    table = table.clone()
    for first, parents in _trees(scene):
        for node in range(len(parents)):
            table[first + node, node] = False
    return table


def _lower(scene: Scene, table: Tensor) -> Tensor:
    table = torch.zeros_like(table)
    for first, parents in _trees(scene):
        for node in range(len(parents)):
            table[first + node, : node + 1] = True
    return table


def _levels(scene: Scene, table: Tensor) -> Tensor:
    table = table.clone()
    for first, parents in _trees(scene):
        depth: list[int] = []
        for node, parent in enumerate(parents):
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
            for other in range(node):
                table[first + node, other] |= depth[other] < depth[node]
    return table


def _tree_of_the_first(scene: Scene) -> Iterator[Alternative]:
    """Every entry of the batch sees by the first one's tree."""
    trees, rows = scene.case.mask.tree, scene.case.seq_q
    if has_entry_trees(trees):
        exact = ancestors(trees or (), scene.case)
        first = exact[:rows].repeat(scene.case.batch, 1)
        yield Alternative(inputs=with_parts(scene, tree=tree(scene, first)))


def _tree_at_the_room(scene: Scene) -> Iterator[Alternative]:
    """The nodes lie at the end of the pages instead of at the last keys."""
    size, nodes = scene.case.storage.page_size, scene.case.mask.tree
    if nodes is not None and size is not None:
        room = max(-(-scene.case.seq_k // size), 1) * size
        exact = ancestors(nodes, scene.case)
        before = tree(scene, _lower(scene, exact))  # no node sees one after it
        part = before & tree(scene, exact, moved=room - scene.case.seq_k)
        yield Alternative(inputs=with_parts(scene, tree=part))


TREES = (
    Semantics(
        name="tree-siblings",
        sentence="a tree node also sees its earlier siblings",
        build=_tree(_siblings),
    ),
    Semantics(
        name="tree-previous-node",
        sentence="a tree node, or a row of a bitmap, also sees the one before it, whatever its bit says",
        build=_sees_the_one_before,
    ),
    Semantics(
        name="tree-parents-only",
        sentence="of its ancestors a tree node sees its parent only",
        build=_tree(_parents),
    ),
    Semantics(name="tree-not-itself", sentence="a tree node does not see itself", build=_tree(_not_itself)),
    Semantics(
        name="tree-as-chain",
        sentence="the tree is taken for a chain: a node sees all nodes before it",
        build=_tree(_lower),
    ),
    Semantics(
        name="tree-by-levels",
        sentence="a tree node sees all nodes before it of a smaller depth, those of other branches too",
        build=_tree(_levels),
    ),
    Semantics(
        name="tree-ignored",
        sentence="the tree is ignored: every node sees every node",
        build=_tree(_lower, part=False),
    ),
    Semantics(
        name="tree-of-the-first-entry",
        sentence="every entry of the batch sees by the tree of the first one",
        build=_tree_of_the_first,
    ),
    Semantics(
        name="tree-at-the-room",
        sentence="the nodes of the tree are looked for at the end of the pages, not at the last keys",
        build=_tree_at_the_room,
    ),
)

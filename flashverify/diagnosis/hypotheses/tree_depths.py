"""Distances of ALiBi that are measured from the depths of nodes in their tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.tree import has_entry_trees, single_trees
from flashverify.case.modifiers.alibi import acting_slopes
from flashverify.diagnosis.hypotheses.terms import split_biases, with_biases
from flashverify.diagnosis.hypothesis import Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

__all__ = ["TREE_DEPTHS"]


def _by_depth(scene: Scene) -> Iterator[Alternative]:
    mask, slopes = scene.case.mask, scene.problem.slopes
    bias, alibi = split_biases(scene)
    if mask.tree is None or mask.packed is not None or alibi is None or slopes is None:
        return
    at, slope = scene.at, acting_slopes(slopes).view(-1, 1, 1)
    depth = _depths(scene)
    row, key = depth + at.shift, at.key.clone()
    nodes = depth.shape[1]
    key[:, key.shape[1] - nodes :] = depth + (key.shape[1] - nodes)
    for rows, keys, words in (
        (row, key, ""),
        (row, at.key, "of rows alone"),
        (at.row + at.shift, key, "of keys alone"),
    ):
        distance = (rows[:, None, :, None] - keys[:, None, None, :]).double()
        yield Alternative(inputs=with_biases(scene, bias, -slope * distance.abs()), detail=words)


def _depths(scene: Scene) -> Tensor:
    """Of each row's node its ancestors, int64 `[B, Sq]`."""
    tree, rows = scene.case.mask.tree, scene.case.seq_q
    assert tree is not None
    found: list[int] = []
    for _, parents in single_trees(tree, None):
        depth: list[int] = []
        for parent in parents:
            depth.append(depth[parent] + 1 if parent >= 0 else 0)
        found += depth
    each = torch.tensor(found, dtype=torch.int64)
    return each.view(-1, rows) if has_entry_trees(tree) else each.expand(scene.case.batch, -1).clone()


TREE_DEPTHS = (
    Semantics(
        name="alibi-by-depth",
        sentence="ALiBi measures distances from the depths of nodes in their tree, not from their numbers",
        build=_by_depth,
    ),
)

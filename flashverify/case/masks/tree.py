"""Trees of query nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flashverify.case.codec import ints, ints_text
from flashverify.case.masks.packed import Packed
from flashverify.case.masks.part import Condition, Drawn, MaskPart, Role, Source
from flashverify.case.masks.tree_shapes import draw_tree
from flashverify.case.require import require
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.case.masks.pairs import Pairs

    Tree = tuple[int, ...]

__all__ = ["TREE", "ancestors", "has_entry_trees", "nodes_seen", "single_trees"]

_SAME = 2
"""Of so many batches of several entries about one has a tree that all share, where the subject takes one for each."""


class _Tree(MaskPart):
    """Parents of the query nodes; the last keys of a sequence are its nodes, and a node sees itself and its ancestors.

    A dense batch shares one tree, or has a tuple of trees, one for each entry. Causal and a window count rows and keys, not nodes on a
    path: a node's place is the number of its row.
    """

    name = word = "tree"
    role: Role = "order"
    reason = "keys that are no ancestors"

    def check(self, value: Any, mask: Mask) -> None:
        """Parents come before their nodes, and every node is a key."""
        entries = has_entry_trees(value)
        if entries:
            apart = mask.packed is None and len(value) > 1 and all(isinstance(tree, tuple) for tree in value)
            require(apart, "tree", value, "a tree for each entry of a dense batch of two or more, or one for all")
        for _, tree in single_trees(value, mask.packed):
            for node, parent in enumerate(tree):
                accepted = f"the parent of node {node} is -1 or a smaller index"
                require(-1 <= parent < node, "tree", value, accepted)
        packed = mask.packed or Packed((0,), (0,))
        for rows, keys in packed.lengths():
            if keys < rows:
                raise UsageError(f"packed cu_k={packed.cu_k} is not accepted: a key per row under a tree mask")

    def check_case(self, value: Any, case: Case) -> None:
        """A node per row."""
        packed = case.mask.packed
        rows, nodes = ("seq_q", case.seq_q) if packed is None else ("cu_q[-1]", packed.cu_q[-1])
        trees = value if has_entry_trees(value) else (value,)
        require(len(trees) in (1, case.batch), "tree", value, f"one tree, or one per entry, batch={case.batch}")
        require(all(len(tree) == nodes for tree in trees), "tree", value, f"one parent per query, {rows}={nodes}")
        if packed is None:
            require(case.seq_k >= nodes, "seq_k", case.seq_k, f"at least seq_q={nodes} under a tree mask")

    def parse(self, text: str) -> Tree | tuple[Tree, ...]:
        """Parents between commas, the trees of a batch's entries between slashes."""
        return tuple(map(ints, text.split("/"))) if "/" in text else ints(text)

    def format(self, value: Any) -> str:
        """Parents between commas, the trees of a batch's entries between slashes."""
        return "/".join(map(ints_text, value)) if has_entry_trees(value) else ints_text(value)

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Keys before the nodes, and those of the row's node and its ancestors."""
        table = ancestors(case.mask.tree or (), case).to(device)
        return {"tree": lambda pairs: nodes_seen(pairs, table)}

    def draw(self, source: Source, drawn: Drawn) -> Tree | tuple[Tree, ...]:
        """A tree for each packed sequence; for each entry of a batch, or one for all."""
        packed = drawn.values.get("packed")
        if packed is not None:
            return tuple(parent for rows, _ in packed.lengths() for parent in draw_tree(source, rows))
        several = drawn.supports.entry_trees and drawn.sequences > 1 and drawn.seq_q > 1
        if several and not source.one_in(_SAME):
            return tuple(draw_tree(source, drawn.seq_q) for _ in range(drawn.sequences))
        return draw_tree(source, drawn.seq_q)

    def simpler(self, value: Any) -> Iterator[Tree]:
        """One tree for all entries."""
        if has_entry_trees(value):
            yield from dict.fromkeys(value)

    def per_sequence(self, value: Any, mask: Mask) -> list[Any] | None:
        """The tree of each packed sequence or entry; None where all share one."""
        if mask.packed is None and not has_entry_trees(value):
            return None
        return [tree for _, tree in single_trees(value, mask.packed)]

    def cut(self, piece: Any, rows: int, keys: int) -> Any:
        """The first nodes."""
        return piece[:rows]

    def join(self, pieces: Iterable[Any], *, packed: bool) -> Tree | tuple[Tree, ...]:
        """The trees of packed sequences one after the other; those of entries as they are, and that of one entry alone."""
        trees = tuple(pieces)
        if not packed and len(trees) > 1:
            return trees
        return tuple(parent for tree in trees for parent in tree)

    def grow(self, piece: Any, rows: int, keys: int) -> tuple[int, ...]:
        """More nodes: in turn on a branch, beside it, and on one far back."""
        nodes = list(piece)
        for n in range(rows):
            count = len(nodes)
            nodes.append(-1 if not count else (count - 1, max(count - 2, 0), count // 2, max(count - 3, 0))[n % 4])
        return tuple(nodes)


def has_entry_trees(tree: Tree | tuple[Tree, ...] | None) -> bool:
    """Whether each entry of the batch has a tree of its own."""
    return bool(tree) and isinstance(tree[0], tuple)  # type: ignore[index]


def single_trees(tree: Any, packed: Packed | None) -> list[tuple[int, Tree]]:
    """First row and parents of each tree, of a packed sequence, of an entry, or of all; rows count on through the entries."""
    if packed is not None:
        return [(first, tree[first:last]) for first, last in pairwise(packed.cu_q)]
    trees = tree if has_entry_trees(tree) else (tree,)
    return [(number * len(trees[0]), parents) for number, parents in enumerate(trees)]


def ancestors(tree: Tree | tuple[Tree, ...], case: Case) -> torch.Tensor:
    """Bool `[Sq, nodes]`: entry (i, n) is true where n is row i's node or an ancestor of it, numbered within its tree.

    Where each entry of the batch has a tree it is `[B * Sq, nodes]`, the rows of an entry behind those of the one before.
    """
    import numpy as np
    import torch

    single = single_trees(tree, case.mask.packed)
    rows = case.seq_q * (len(tree) if has_entry_trees(tree) else 1)
    table = np.zeros((rows, max((len(parents) for _, parents in single), default=0) or 1), dtype=bool)
    for first, parents in single:
        for node, parent in enumerate(parents):
            if parent >= 0:
                table[first + node] = table[first + parent]
            table[first + node, node] = True
    return torch.from_numpy(table)


def nodes_seen(pairs: Pairs, table: torch.Tensor, *, moved: int = 0) -> torch.Tensor:
    """The tree's condition by a table as `ancestors` gives it; the nodes are the last keys, or lie `moved` keys behind."""
    case = pairs.case
    dense = case.mask.packed is None
    first = (case.seq_k if dense else pairs.keys) - (case.seq_q if dense else pairs.rows)
    node = pairs.key - first - moved
    inside = (node >= 0) & (node < table.shape[1])
    row = pairs.row_index + (pairs.batch * case.seq_q if has_entry_trees(case.mask.tree) else 0)
    return (node < 0) | (inside & table[row, node.clamp(0, table.shape[1] - 1)])


TREE = _Tree()

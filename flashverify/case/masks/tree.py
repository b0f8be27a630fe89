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
    from collections.abc import Iterable

    import torch

    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Mask
    from flashverify.case.masks.pairs import Pairs

__all__ = ["TREE", "ancestors", "nodes_seen"]


class _Tree(MaskPart):
    """Parents of the query nodes; the last keys of a sequence are its nodes, and a node sees itself and its ancestors."""

    name = word = "tree"
    role: Role = "order"
    reason = "keys that are no ancestors"
    excludes = ("causal", "window")

    def check(self, value: Any, mask: Mask) -> None:
        """Parents come before their nodes, and every node is a key."""
        if mask.causal or mask.window:
            raise UsageError("a tree mask cannot be combined with causal or window")
        each = self.per_sequence(value, mask)
        for tree in [value] if each is None else each:
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
        require(len(value) == nodes, "tree", value, f"one parent per query, {rows}={nodes}")
        if packed is None:
            require(case.seq_k >= nodes, "seq_k", case.seq_k, f"at least seq_q={nodes} under a tree mask")

    def parse(self, text: str) -> tuple[int, ...]:
        """Parents between commas."""
        return ints(text)

    def format(self, value: Any) -> str:
        """Parents between commas."""
        return ints_text(value)

    def conditions(self, case: Case, device: torch.device | str) -> dict[str, Condition]:
        """Keys before the nodes, and those of the row's node and its ancestors."""
        table = ancestors(case.mask.tree or (), case).to(device)
        return {"tree": lambda pairs: nodes_seen(pairs, table)}

    def draw(self, source: Source, drawn: Drawn) -> tuple[int, ...]:
        """A tree for each packed sequence, or one for all."""
        packed = drawn.values.get("packed")
        nodes = (drawn.seq_q,) if packed is None else tuple(rows for rows, _ in packed.lengths())
        return tuple(parent for n in nodes for parent in draw_tree(source, n))

    def per_sequence(self, value: Any, mask: Mask) -> list[Any] | None:
        """The tree of each packed sequence; one for all otherwise."""
        if mask.packed is None:
            return None
        return [value[first:last] for first, last in pairwise(mask.packed.cu_q)]

    def cut(self, piece: Any, rows: int, keys: int) -> Any:
        """The first nodes."""
        return piece[:rows]

    def join(self, pieces: Iterable[Any]) -> tuple[int, ...]:
        """The trees one after the other."""
        return tuple(parent for piece in pieces for parent in piece)

    def grow(self, piece: Any, rows: int, keys: int) -> tuple[int, ...]:
        """More nodes: in turn on a branch, beside it, and on one far back."""
        nodes = list(piece)
        for n in range(rows):
            count = len(nodes)
            nodes.append(-1 if not count else (count - 1, max(count - 2, 0), count // 2, max(count - 3, 0))[n % 4])
        return tuple(nodes)


def ancestors(parents: tuple[int, ...], case: Case) -> torch.Tensor:
    """Bool `[Sq, nodes]`: entry (i, n) is true where n is row i's node or an ancestor of it, numbered within its tree."""
    import torch

    packed = case.mask.packed
    starts = packed.cu_q if packed is not None else (0, len(parents))
    widest = max((b - a for a, b in pairwise(starts)), default=0)
    table = torch.zeros(case.seq_q, max(widest, 1), dtype=torch.bool)
    for first, last in pairwise(starts):
        for node in range(last - first):
            parent = parents[first + node]
            if parent >= 0:
                table[first + node] |= table[first + parent]
            table[first + node, node] = True
    return table


def nodes_seen(pairs: Pairs, table: torch.Tensor, *, moved: int = 0) -> torch.Tensor:
    """The tree's condition by a table `[Sq, nodes]` as `ancestors` gives it; the nodes are the last keys, or lie `moved` keys behind."""
    case = pairs.case
    dense = case.mask.packed is None
    first = (case.seq_k if dense else pairs.keys) - (case.seq_q if dense else pairs.rows)
    node = pairs.key - first - moved
    inside = (node >= 0) & (node < table.shape[1])
    return (node < 0) | (inside & table[pairs.row_index, node.clamp(0, table.shape[1] - 1)])


TREE = _Tree()

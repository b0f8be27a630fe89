"""What only plain Python gets wrong: whose stride it is, how a tensor lies in memory, what a choice computes anew."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.repair.kinds import likeness, shape_of
from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around, Varied

__all__ = ["given", "layouts", "owners", "verdicts"]

_OF_TENSORS = frozenset({"stride", "shape", "size", "dtype", "numel", "dim", "ndim", "device"})
"""What a tensor is asked for that another one may answer otherwise."""
_ALLOCATIONS = frozenset({"empty_like", "zeros_like", "ones_like", "full_like"})
_OWNERS = 8
"""Other tensors that are asked in place of one."""


def owners(node: ast.AST, around: Around) -> Iterator[Varied]:
    """The stride, the size or the dtype of another tensor."""
    parent = around.parent
    if not isinstance(node, ast.Name) or not isinstance(parent, ast.Attribute) or parent.attr not in _OF_TENSORS:
        return
    shape = shape_of(around.kind(node))
    if shape is None:
        return
    others = [
        name
        for name, kind in around.ran.kinds.items()
        if name != node.id and (of := shape_of(kind)) is not None and len(of) == len(shape)
    ]
    others.sort(key=lambda name: (name not in around.ran.read, -likeness(node.id, name)))
    for rank, name in enumerate(others[:_OWNERS]):
        yield around.replaced(node, name, 1.5 + 0.1 * rank)


def layouts(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A tensor that lies otherwise in memory than the code that gets it takes for granted."""
    if around.in_kernel:
        return
    if called(node) in _ALLOCATIONS and isinstance(node, ast.Call) and node.args:
        if not any(keyword.arg == "memory_format" for keyword in node.keywords):
            last = around.of(node.args[-1])
            yield around.replaced(node.args[-1], f"{last}, memory_format=torch.contiguous_format", 1.6)
    elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(getattr(node, "ctx", None), ast.Load):
        parent = around.parent
        passed = isinstance(parent, ast.Call) and any(node is each for each in parent.args)
        if (passed or isinstance(parent, ast.Assign)) and shape_of(around.kind(node)) is not None:
            yield around.replaced(node, f"{around.of(node)}.contiguous()", 2.3)


def given(node: ast.AST, around: Around) -> Iterator[Varied]:
    """What is given is taken as it is, not computed anew: `None if x is None else f(x)`."""
    if not isinstance(node, ast.IfExp) or not isinstance(node.test, ast.Compare):
        return
    asked, (op, against) = node.test.left, (node.test.ops[0], node.test.comparators[0])
    if isinstance(against, ast.Constant) and against.value is None and isinstance(op, (ast.Is, ast.IsNot)):
        side = node.orelse if isinstance(op, ast.Is) else node.body
        if around.of(side) != around.of(asked):
            yield around.replaced(side, around.of(asked), 1.6)
            yield around.replaced(side, f"{around.of(asked)}.contiguous()", 1.7)


def verdicts(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A question that is answered alike always."""
    if isinstance(node, ast.Return) and node.value is not None and around.ran.returned == "bool":
        for value in ("False", "True"):
            if around.of(node.value) != value:
                yield around.replaced(node.value, value, 1.6)

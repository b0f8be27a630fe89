"""One name where another one of its kind belongs."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING

from flashverify.repair.exchange import Edit
from flashverify.repair.kinds import likeness, shape_of
from flashverify.repair.operators.around import Varied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around

__all__ = ["as_elsewhere", "exchanged_arguments", "others", "spreads"]

_MOST = 12
"""Names that are tried for one."""
_WHOLE = 10
"""Names that are tried for an expression or a constant."""


def others(node: ast.AST, around: Around) -> Iterator[Varied]:
    """Another name for a name; a name for a sum, a product or a number."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(around.parent, ast.Attribute):
        return
    if isinstance(node, (ast.Name, ast.Attribute)) and (kind := around.kind(node)):
        text = around.of(node)
        if isinstance(around.parent, ast.Call) and node is around.parent.func:
            return
        for rank, name in enumerate(_alike(text, kind, around)[:_MOST]):
            yield around.replaced(node, name, 1.3 + 0.12 * rank)
    elif isinstance(node, ast.BinOp) or (isinstance(node, ast.Constant) and type(node.value) is int):
        kind = around.kind(node) or ("int" if isinstance(node, ast.Constant) else "")
        if kind == "int" and not isinstance(around.parent, ast.Subscript):
            cost = 1.9 if isinstance(node, ast.BinOp) else 2.0
            for rank, name in enumerate(_alike(around.of(node), kind, around)[:_WHOLE]):
                yield around.replaced(node, name, cost + 0.1 * rank)


def as_elsewhere(node: ast.AST, around: Around) -> Iterator[Varied]:
    """What other calls of the same function have in the place of an argument, or what is assigned elsewhere to a name that is called so."""
    ran = around.ran
    if isinstance(node, ast.Call):
        for argument, text, names in ran.family.arguments(node):
            if names <= ran.known and text != around.of(argument):
                yield around.replaced(argument, text, 1.25)
    elif node is around.statement and isinstance(node, ast.Assign) and len(node.targets) == 1:
        for text, names in ran.family.assigned(around.of(node.targets[0])):
            if names <= ran.known and text != around.of(node.value):
                yield around.replaced(node.value, text, 1.5)


def exchanged_arguments(node: ast.AST, around: Around) -> Iterator[Varied]:
    """Two neighbouring arguments, or parts of a tuple, in each other's place."""
    if not isinstance(node, (ast.Call, ast.Tuple)):
        return
    each = node.args if isinstance(node, ast.Call) else node.elts
    for first, second in pairwise(each):
        one, other = around.kind(first), around.kind(second)
        if around.of(first) != around.of(second) and (one == other or not (one and other)):
            (start, end), (after, last) = around.ran.source.span(first), around.ran.source.span(second)
            text = around.ran.source.text
            joined = f"{text[after:last]}{text[end:after]}{text[start:end]}"
            yield Varied(Edit(start, last, joined), 1.2 if one and one == other else 2.0, node)


def spreads(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A vector that is spread along the other axis."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        first, second = node.slice.elts
        if isinstance(first, ast.Slice) != isinstance(second, ast.Slice):
            start, end = around.ran.source.span(node.slice)
            yield Varied(Edit(start, end, f"{around.of(second)}, {around.of(first)}"), 1.6, node)


def _alike(text: str, kind: str, around: Around) -> list[str]:
    """Names of the same kind that are defined there, those first that are spelled most alike."""
    shape = shape_of(kind)
    found = []
    for name, other in around.ran.kinds.items():
        same = other == kind or (shape is not None and shape_of(other) == shape and other[:3] == kind[:3])
        if same and name != text and name.isascii():
            found.append(name)
    last = text.rpartition(".")[2]
    return sorted(found, key=lambda name: -_likeness(last, name.rpartition(".")[2], name in around.ran.read))


def _likeness(one: str, other: str, read: bool) -> float:
    return likeness(one, other) + 0.5 * read

"""What other functions of the subject do and this one does not: an argument that is passed, a line that changes a value."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around, Varied

__all__ = ["arguments", "lines"]


def arguments(node: ast.AST, around: Around) -> Iterator[Varied]:
    """An argument by name that other calls of the same function have."""
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        return
    ran = around.ran
    for name, text, names in ran.family.missing(node):
        if names <= ran.known:
            yield around.replaced(node, around.with_argument(node, f"{name}={text}"), 1.7)


def lines(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A line that changes what was just assigned, as another function has it."""
    if node is not around.statement or not isinstance(node, (ast.Assign, ast.AugAssign)):
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if not isinstance(target, ast.Name):
        return
    ran = around.ran
    for text, names in ran.family.updates(target.id):
        if names <= ran.known and text not in ran.text:
            yield around.replaced(node, f"{around.of(node)}; {text}", 2.2)

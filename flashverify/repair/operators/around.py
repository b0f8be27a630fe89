"""What an operator is told of the node that it varies, and what it answers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from flashverify.repair.exchange import Edit

if TYPE_CHECKING:
    from flashverify.repair.functions import Ran

__all__ = ["Around", "Varied"]


@dataclass(frozen=True, slots=True)
class Varied:
    """An edit.

    Attributes:
        edit: what is replaced.
        cost: how far it is from what stands there: 1 for one symbol, more for what is put in.
        node: the expression whose value it changes, or the statement.
    """

    edit: Edit
    cost: float
    node: ast.expr | ast.stmt


@dataclass(frozen=True)
class Around:
    """Where a node stands.

    Attributes:
        ran: the function.
        statement: the simple statement, or the one whose head holds the node.
        parent: the enclosing node.
    """

    ran: Ran
    statement: ast.stmt
    parent: ast.AST

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        return self.ran.source.of(node)

    def replaced(self, node: ast.expr | ast.stmt, text: str, cost: float) -> Varied:
        """Another text in place of a node."""
        return Varied(Edit(*self.ran.source.span(node), text), cost, node)

    def between(self, whole: ast.expr, sides: tuple[ast.AST, ast.AST], symbol: str, text: str, cost: float) -> Varied:
        """Another text in place of the operator between two sides of an expression."""
        return Varied(Edit(*self.ran.source.between(*sides, symbol), text), cost, whole)

    def with_argument(self, call: ast.Call, text: str) -> str:
        """The text of a call with one more argument at its end."""
        inside = self.of(call)[:-1].rstrip().rstrip(",")
        return f"{inside}{'' if inside.endswith('(') else ', '}{text})"

    @cached_property
    def in_kernel(self) -> bool:
        """Whether Triton runs it."""
        return self.ran.kernel is not None

    def kind(self, node: ast.AST) -> str:
        """Of what kind a value is, as `kinds_of` has it; empty where that is not known."""
        if isinstance(node, ast.Constant):
            return type(node.value).__name__
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.ran.kinds.get(self.of(node), "")
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return "bool"
        if isinstance(node, ast.BinOp):
            left, right = self.kind(node.left), self.kind(node.right)
            return left if left == right else ""
        return ""

"""Comparisons and conditions that are off by one, turned round, too narrow or too wide."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around, Varied

__all__ = ["bounds", "branches", "comparisons", "conjuncts"]

_SYMBOLS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_INSTEAD = {
    "<": (("<=", 1.0), (">=", 1.6), (">", 1.8)),
    "<=": (("<", 1.0), (">", 1.6), (">=", 1.8)),
    ">": ((">=", 1.0), ("<=", 1.6), ("<", 1.8)),
    ">=": ((">", 1.0), ("<", 1.6), ("<=", 1.8)),
    "==": (("!=", 1.2), ("<=", 2.0), (">=", 2.0)),
    "!=": (("==", 1.2),),
}
_BOUND = {"<": " - 1", "<=": " + 1", ">": " + 1", ">=": " - 1"}
"""The step of a bound to the side to which the neighbouring comparison does not move it."""


def comparisons(node: ast.AST, around: Around) -> Iterator[Varied]:
    """Another comparison, or a bound that is one further."""
    if not isinstance(node, ast.Compare):
        return
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        symbol = _SYMBOLS.get(type(op), "")
        for other, cost in _INSTEAD.get(symbol, ()):
            yield around.between(node, (left, right), symbol, other, cost)
        if symbol in _BOUND and not (isinstance(right, ast.Constant) and isinstance(right.value, float)):
            yield around.replaced(right, around.of(right) + _BOUND[symbol], 1.5)
        left = right


def bounds(node: ast.AST, around: Around) -> Iterator[Varied]:
    """Places that are asked for the end alone, and may lie before the first one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Lt, ast.LtE)):
        left = node.left
        named = (each for each in ast.walk(left) if isinstance(each, ast.Name))
        if any(around.kind(each).startswith("int[") for each in named):
            yield around.replaced(node, f"(({around.of(left)} >= 0) & ({around.of(node)}))", 2.2)


def conjuncts(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A part of a condition is left out, or `and` becomes `or`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        left, right = around.of(node.left), around.of(node.right)
        other = "|" if isinstance(node.op, ast.BitAnd) else "&"
        yield around.replaced(node, f"({left})", 1.0)
        yield around.replaced(node, f"({right})", 1.0)
        yield around.replaced(node, f"(({left}) {other} ({right}))", 1.6)
    elif isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        for gone in node.values:
            rest = word.join(f"({around.of(value)})" for value in node.values if value is not gone)
            yield around.replaced(node, f"({rest})", 1.0)
        other = " or " if isinstance(node.op, ast.And) else " and "
        yield around.replaced(node, f"({other.join(f'({around.of(value)})' for value in node.values)})", 1.6)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield around.replaced(node, f"({around.of(node.operand)})", 1.2)


def branches(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A condition that always holds, never does, or decides the other way."""
    if isinstance(node, (ast.If, ast.While)):
        yield around.replaced(node.test, f"not ({around.of(node.test)})", 1.6)
        for value in ("True", "False") if isinstance(node, ast.If) else ():
            yield around.replaced(node.test, value, 1.4)
    elif isinstance(node, ast.IfExp):
        yield around.replaced(node, f"({around.of(node.body)})", 1.2)
        yield around.replaced(node, f"({around.of(node.orelse)})", 1.2)
        turned = f"(({around.of(node.orelse)}) if {around.of(node.test)} else ({around.of(node.body)}))"
        yield around.replaced(node, turned, 1.4)
    elif called(node) == "where" and isinstance(node, ast.Call) and len(node.args) == 3:
        condition, yes, no = (around.of(each) for each in node.args)
        yield around.replaced(node, f"({yes})", 1.2)
        yield around.replaced(node, f"({no})", 1.4)
        yield around.replaced(node, f"{around.of(node.func)}({condition}, {no}, {yes})", 1.4)

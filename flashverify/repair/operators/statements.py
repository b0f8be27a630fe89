"""Statements that should not be there, come too early, or do something else to their target."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.repair.exchange import Edit
from flashverify.repair.operators.around import Varied
from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around

__all__ = ["calls", "everywhere", "left_out", "loops", "updates"]

_CONVERSIONS = ("to", "float", "double", "half", "bfloat16", "detach")
_INVERSE = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


def left_out(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A statement does not happen."""
    if node is not around.statement:
        return
    if isinstance(node, ast.AugAssign):
        yield _without(node, around, 1.1)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        if around.ran.has_value(node.targets[0].id, node):
            yield _without(node, around, 1.1)
    elif (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)) or isinstance(
        node, (ast.Continue, ast.Break)
    ):
        yield _without(node, around, 1.7)


def _without(node: ast.stmt, around: Around, cost: float) -> Varied:
    lines = around.of(node).count("\n")
    return Varied(Edit(*around.ran.source.span(node), "pass" + "\n" * lines), cost, node)


def updates(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A sum that is a difference, or only its last term."""
    if not isinstance(node, ast.AugAssign) or type(node.op) not in _INVERSE:
        return
    target, value = around.of(node.target), around.of(node.value)
    yield around.replaced(node, f"{target} {_INVERSE[type(node.op)]}= {value}", 1.5)
    yield around.replaced(node, f"{target} = {value}", 1.8)


def loops(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A loop of one step more or less."""
    if not isinstance(node, ast.For) or called(node.iter) not in ("range", "static_range"):
        return
    assert isinstance(node.iter, ast.Call)
    arguments = node.iter.args
    step = f"({around.of(arguments[2])})" if len(arguments) == 3 else "1"
    stop = arguments[0] if len(arguments) == 1 else arguments[1]
    for sign in "+-":
        yield around.replaced(stop, f"({around.of(stop)}) {sign} {step}", 1.6)
    if len(arguments) > 1:
        for sign in "-+":
            yield around.replaced(arguments[0], f"({around.of(arguments[0])}) {sign} {step}", 1.7)
        yield around.replaced(arguments[0], "0", 1.7)


def calls(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A conversion, a function of one argument or an argument by name that is left out."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute) and called(node) in _CONVERSIONS:
        yield around.replaced(node, f"({around.of(node.func.value)})", 1.2)
        if called(node) == "to" and around.in_kernel and node.args:
            for dtype in ("tl.float32", "tl.float64"):
                if around.of(node.args[0]) != dtype:
                    yield around.replaced(node.args[0], dtype, 1.8)
    elif isinstance(node.func, ast.Attribute) and around.kind(node.func.value).startswith("float["):
        yield around.replaced(node, f"({around.of(node.func.value)})", 1.7)
    elif called(node) == "_replace" and isinstance(node.func, ast.Attribute):
        yield around.replaced(node, f"({around.of(node.func.value)})", 1.5)
    elif len(node.args) == 1 and not node.keywords and not isinstance(around.parent, ast.Expr):
        yield around.replaced(node, f"({around.of(node.args[0])})", 1.7)
    elif len(node.args) > 1 and around.kind(node.args[0]) and not isinstance(around.parent, ast.Expr):
        yield around.replaced(node, f"({around.of(node.args[0])})", 2.2)
    for keyword in node.keywords:
        if keyword.arg is not None:
            start, end = around.ran.source.span(keyword)
            comma = around.ran.source.text.rfind(",", 0, start)
            if comma > around.ran.source.span(node.func)[1]:
                yield Varied(Edit(comma, end, ""), 2.0, node)


def everywhere(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A conversion that is made at several places of a statement is left out at all of them."""
    if node is not around.statement or not isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)):
        return
    start = around.ran.source.span(node)[0]
    for name in _CONVERSIONS:
        found = [each for each in ast.walk(node) if called(each) == name and isinstance(each, ast.Call)]
        spans = [
            (around.ran.source.span(each.func.value)[1] - start, around.ran.source.span(each)[1] - start)
            for each in found
            if isinstance(each.func, ast.Attribute)
        ]
        if len(spans) > 1:
            text = around.of(node)
            for begin, end in sorted(spans, reverse=True):
                text = text[:begin] + text[end:]
            yield around.replaced(node, text, 1.6)

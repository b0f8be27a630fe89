"""Arithmetic with a term, a factor, a sign or a constant that is wrong."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around, Varied

__all__ = ["arithmetic", "constants", "extremes", "quotients", "remainders", "signs", "terms"]

_SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_INSTEAD = {"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "//": ("%",), "%": ("//",)}
_EXTREMES = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max"}
_OTHERS = {"exp2": "exp", "exp": "exp2", "log2": "log", "log": "log2"}
_DIVISORS = 6
"""Names by which a remainder is tried."""
_OF_HOST = 1.9
"""Cost of another integer outside of kernels: many of these choose sizes of tiles, of which one hides mistakes and another shows them."""


def arithmetic(node: ast.AST, around: Around) -> Iterator[Varied]:
    """An operand is left out, or the operation is its inverse."""
    if not isinstance(node, ast.BinOp) or type(node.op) not in _SYMBOLS:
        return
    symbol = _SYMBOLS[type(node.op)]
    left, right = around.of(node.left), around.of(node.right)
    yield around.replaced(node, f"({left})", 1.0)
    if symbol in "+*":
        yield around.replaced(node, f"({right})", 1.0)
    elif symbol == "-":
        yield around.replaced(node, f"(({right}) - ({left}))", 1.8)
    for other in _INSTEAD[symbol]:
        yield around.replaced(node, f"(({left}) {other} ({right}))", 1.5)


def quotients(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A quotient that is rounded the other way."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        left, right = around.of(node.left), around.of(node.right)
        yield around.replaced(node, f"((({left}) + ({right}) - 1) // ({right}))", 1.0)
    elif isinstance(node, ast.Call) and called(node) == "cdiv" and len(node.args) == 2:
        yield around.replaced(node, f"(({around.of(node.args[0])}) // ({around.of(node.args[1])}))", 1.0)


def remainders(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A remainder by another number for a quotient, or the other way round, as heads are dealt out to groups."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        other = "%" if isinstance(node.op, ast.FloorDiv) else "//"
        by = around.of(node.right)
        for rank, name in enumerate(around.ran.names_of("int", near=by)[:_DIVISORS]):
            if name not in (by, around.of(node.left)):
                yield around.replaced(node, f"({around.of(node.left)} {other} {name})", 2.2 + 0.1 * rank)


def terms(node: ast.AST, around: Around) -> Iterator[Varied]:
    """One name, or field, of an expression in place of the whole of it."""
    if not isinstance(node, ast.BinOp) or isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return
    inside = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)) and around.kind(each))
    for text in dict.fromkeys(map(around.of, inside)):
        yield around.replaced(node, text, 1.15)


def signs(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A sign that is missing, or one too many."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield around.replaced(node, f"({around.of(node.operand)})", 1.3)
    elif (
        isinstance(around.parent, (ast.Assign, ast.BinOp))
        and isinstance(node, (ast.Name, ast.Call))
        and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        and around.kind(node).startswith("float")
    ):
        yield around.replaced(node, f"(-{around.of(node)})", 2.6)


def constants(node: ast.AST, around: Around) -> Iterator[Varied]:
    """Another number."""
    if not isinstance(node, ast.Constant) or isinstance(around.parent, (ast.Expr, ast.JoinedStr)):
        return
    value = node.value
    if isinstance(value, bool):
        yield around.replaced(node, str(not value), 1.2)
    elif isinstance(value, int):
        for other in dict.fromkeys((value + 1, value - 1, 0, 1, 2 * value, value // 2)):
            if other != value:
                cost = 1.4 if around.in_kernel else _OF_HOST
                yield around.replaced(node, str(other) if other >= 0 else f"({other})", cost)
    elif isinstance(value, float):
        near = (0.0, 1.0, -value, 2.0 * value, 0.5 * value, 1.0 / value if value else 1.0)
        for number in dict.fromkeys(near):
            if number != value:
                yield around.replaced(node, f"({number!r})", 1.6)
        if value <= 0.0:
            yield around.replaced(node, 'float("-inf")', 1.6)
    elif value in ("inf", "-inf"):
        yield around.replaced(node, repr("inf" if value == "-inf" else "-inf"), 1.4)


def extremes(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A limit that is none, a smallest for a largest, another base."""
    name = called(node)
    if not isinstance(node, ast.Call):
        return
    of = around.of(node.func)
    if name in _EXTREMES and len(node.args) == 2:
        first, second = (around.of(each) for each in node.args)
        yield around.replaced(node, f"({first})", 1.1)
        yield around.replaced(node, f"({second})", 1.1)
    other = (_EXTREMES | _OTHERS).get(name)
    if other is not None:
        yield around.replaced(node.func, f"{of.removesuffix(name)}{other}", 1.3)

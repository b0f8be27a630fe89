"""Operators on numbers: comparisons, arithmetic, bounds, constants, reductions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.mutants.operators.walk import MODULE, Edit
from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.mutants.operators.walk import Place

__all__ = ["NUMBERS"]

_COMPARE = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}
_EQUAL = {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")}
_BOUND = {ast.Lt: " - 1", ast.LtE: " + 1", ast.Gt: " + 1", ast.GtE: " - 1"}
"""The side to which the swap of the comparison does not already move an integer bound."""
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_LIMITS = frozenset(
    (
        "sq",
        "sk",
        "q_end",
        "k_end",
        "rows",
        "keys",
        "row_limit",
        "parts",
        "length",
        "stop",
        "end",
        "last",
        "blocks",
        "sure_from",
        "sure_to",
    )
)
_NO_LIMITS = frozenset(("merge_tiles", "merge_constants"))
"""Functions whose arguments of these names choose tiles, or are tensors."""
_CALLS = {
    "max": "min",
    "sum": "max",
    "maximum": "minimum",
    "minimum": "maximum",
    "min": "max",
    "exp2": "exp",
    "log2": "log",
}
_LOGARITHMS = frozenset({"LOG2_E", "_LOG2_E", "_LN_2"})


def _compare(node: ast.AST, place: Place) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        old, new = {**_COMPARE, **_EQUAL}.get(type(op), ("", ""))
        if old:
            start, end = place.source.between(left, right, old)
            yield Edit(start, end, new, "compare", f"{old} becomes {new}")
        left = right


def _bound(node: ast.AST, place: Place) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    for op, right in zip(node.ops, node.comparators, strict=True):
        step = _BOUND.get(type(op))
        if step and not (isinstance(right, ast.Constant) and isinstance(right.value, float)):
            end = place.source.span(right)[1]
            yield Edit(end, end, step, "bound", f"the bound {place.source.of(right)}{step}")


def _limit_argument(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A limit handed to a function, one too large and one too small."""
    if called(place.parent) in _NO_LIMITS:
        return
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    if name in _LIMITS and _is_argument(node, place):
        for step in (" + 1", " - 1"):
            text = place.source.of(node) + step
            yield place.replace(node, text, "limit", f"the argument {text}")


def _is_argument(node: ast.AST, place: Place) -> bool:
    return isinstance(place.parent, ast.Call) and any(node is x for x in place.parent.args)


def _is_flag(node: ast.BinOp, place: Place) -> bool:
    return any(name in place.source.of(node) for name in ("MASK", "LOWER", "UPPER", "BITS", "SPARSE"))


def _arithmetic(node: ast.AST, place: Place) -> Iterator[Edit]:
    if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC or _is_flag(node, place):
        return
    old, new = _ARITHMETIC[type(node.op)]
    start, end = place.source.span(node)
    at, after = place.source.between(node.left, node.right, old)
    text = place.source.text
    changed = f"{text[start:at]}{new}{text[after:end]}"
    if isinstance(node.op, ast.Mult):
        changed = f"({changed})"
    yield Edit(start, end, changed, "arithmetic", f"{old} becomes {new}")


def _operand(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A factor or a term is left out."""
    symbols: dict[type[ast.AST], str] = {ast.Mult: "*", ast.Div: "/", ast.Add: "+", ast.Sub: "-", ast.FloorDiv: "//"}
    if not isinstance(node, ast.BinOp) or type(node.op) not in symbols:
        return
    start, end = place.source.span(node)
    at, after = place.source.between(node.left, node.right, symbols[type(node.op)])
    text = place.source.text
    left, right = text[start:at].rstrip(), text[after:end].lstrip()
    name = "factor" if isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)) else "term"
    yield Edit(start, end, left, name, f"{_short(right)} is left out")
    if isinstance(node.op, (ast.Mult, ast.Add)):
        yield Edit(start, end, right, name, f"{_short(left)} is left out")


def _short(text: str) -> str:
    return " ".join(text.split())[:60]


def _constant(node: ast.AST, place: Place) -> Iterator[Edit]:
    if called(node) == "float" and isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant):
        word = repr(node.args[0].value)
        for new in {"'-inf'": ("-1.0e4", "0.0"), "'inf'": ("1.0e4", "0.0")}.get(word, ()):
            yield place.replace(node, new, "constant", f"{word} becomes {new}")
    if isinstance(node, ast.Name) and node.id in _LOGARITHMS and isinstance(node.ctx, ast.Load):
        yield place.replace(node, "1.0", "constant", f"{node.id} becomes 1")
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return
    if isinstance(node.value, float):
        new = {0.0: "1.0", 1.0: "2.0"}.get(node.value, f"({place.source.of(node)} * 1.0078125)")
        yield place.replace(node, new, "constant", f"{place.source.of(node)} becomes {new}")
    elif isinstance(node.value, int) and (
        isinstance(place.parent, ast.BinOp) or called(place.parent) in ("maximum", "minimum", "max", "min", "constexpr")
    ):
        yield place.replace(node, str(node.value + 1), "constant", f"{node.value} becomes {node.value + 1}")


def _coefficient(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A number that is written as a hexadecimal float, by one part in 128."""
    if place.function == MODULE and called(node) == "fromhex":
        yield place.replace(node, f"{place.source.of(node)} * 1.0078125", "constant", "off by one part in 128")


def _call(node: ast.AST, place: Place) -> Iterator[Edit]:
    """Another function of the same arguments, a rounding in the other direction, or the argument itself."""
    if not isinstance(node, ast.Call):
        if _is_ceiling(node) and isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.BinOp):
            start, end = place.source.span(node.operand)
            inner = place.source.text[start:end].lstrip("-")
            yield place.replace(node, f"({inner})", "call", "a quotient rounded down instead of up")
        return
    name, of = called(node), place.source.of
    if name in _CALLS:
        end = place.source.span(node.func)[1]
        yield Edit(end - len(name), end, _CALLS[name], "call", f"{name} becomes {_CALLS[name]}")
    elif name == "cdiv":
        text = f"(({of(node.args[0])}) // ({of(node.args[1])}))"
        yield place.replace(node, text, "call", "a quotient rounded down instead of up")
    elif name in ("abs", "_clamp", "declared"):
        text = of(node.args[-1 if name == "declared" else 0])
        yield place.replace(node, f"({text})", "call", f"{name} is left out")


def _is_ceiling(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.BinOp)
        and isinstance(node.operand.op, ast.FloorDiv)
        and isinstance(node.operand.left, ast.UnaryOp)
    )


def _sign(node: ast.AST, place: Place) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and not _is_ceiling(node) and not isinstance(node.operand, ast.Constant):
        symbol = {ast.USub: "-", ast.Not: "not", ast.Invert: "~"}.get(type(node.op))
        if symbol:
            yield place.replace(node, place.source.of(node)[len(symbol) :].lstrip(), "sign", f"{symbol} is left out")


def _axis(node: ast.AST, place: Place) -> Iterator[Edit]:
    """The axis of a reduction, and the one along which a vector is spread."""
    if isinstance(node, ast.Call) and called(node) in ("max", "sum") and len(node.args) == 2:
        axis = node.args[1]
        if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
            new = {0: 1, 1: 0}.get(axis.value, axis.value - 1)
            yield place.replace(axis, str(new), "axis", f"reduced along axis {new}")
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        first, second = node.slice.elts
        if isinstance(first, ast.Slice) != isinstance(second, ast.Slice):
            start, end = place.source.span(node.slice)
            text = f"{place.source.of(second)}, {place.source.of(first)}"
            yield Edit(start, end, text, "axis", "spread along the other axis")


NUMBERS: tuple[Callable[[ast.AST, Place], Iterator[Edit]], ...] = (
    _compare,
    _bound,
    _limit_argument,
    _arithmetic,
    _operand,
    _constant,
    _coefficient,
    _call,
    _sign,
    _axis,
)

"""What was forgotten: a limit, an offset, a factor, a part of a mask, a conversion."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from flashverify.repair.kinds import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.operators.around import Around, Varied

__all__ = ["conversions", "factors", "limits", "masks"]

_INTEGERS, _FLOATS, _CONDITIONS = 14, 10, 10
"""Names, and conditions, that are put in at one place."""
_OF_BASES = (math.log(2), 1 / math.log(2))
"""What takes a logarithm from one base to the other."""
_SUMS = (ast.Add, ast.Sub)


def limits(node: ast.AST, around: Around) -> Iterator[Varied]:
    """An integer that is not limited, moved or multiplied as it should be."""
    if not isinstance(node, ast.expr) or not _is_value(node, around):
        return
    text, kind = around.of(node), _kind(node, around)
    if kind.startswith("int["):
        for rank, name in enumerate(around.ran.names_of("int", near=text)[:_INTEGERS]):
            for symbol in "+-":
                yield around.replaced(node, f"({text}) {symbol} {name}", 2.6 + 0.1 * rank)
    if kind != "int":
        return
    least, most = ("tl.maximum", "tl.minimum") if around.in_kernel else ("max", "min")
    yield around.replaced(node, f"{least}({text}, 0)", 2.4)
    for rank, name in enumerate(around.ran.names_of("int", near=text)[:_INTEGERS]):
        if name not in text:
            cost = 2.4 + 0.1 * rank
            yield around.replaced(node, f"{most}({text}, {name})", cost)
            yield around.replaced(node, f"{least}({text}, {name})", cost + 0.05)
            for symbol in "+-*":
                yield around.replaced(node, f"({text}) {symbol} {name}", cost + 0.2)


def factors(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A number that lacks a factor or a term."""
    if not isinstance(node, ast.expr):
        return
    if not _is_value(node, around):
        yield from _factors_of_a_term(node, around)
        return
    kind = _kind(node, around)
    if not kind.startswith("float"):
        return
    text, shape = around.of(node), shape_of(kind)
    for number in _OF_BASES:
        yield around.replaced(node, f"({text}) * {number!r}", 2.9)
    for rank, name in enumerate(around.ran.names_of("float", near=text)[:_FLOATS]):
        cost = 2.4 + 0.1 * rank
        yield around.replaced(node, f"({text}) * {name}", cost)
        yield around.replaced(node, f"({text}) / {name}", cost + 0.1)
        yield around.replaced(node, f"({text}) - {name}", cost + 0.3)
        yield around.replaced(node, f"({text}) + {name}", cost + 0.3)
    if around.in_kernel and shape is not None:
        for rank, name in enumerate(around.ran.names_of(kind, near=text)[:_FLOATS]):
            if name != text:
                yield around.replaced(node, f"tl.where({name} < 0, -({text}), {text})", 2.7 + 0.1 * rank)
    if shape is not None and len(shape) == 2 and around.in_kernel:
        for rank, name in enumerate(around.ran.names_of(f"float[{shape[0]}]", near=text)[:_FLOATS]):
            yield around.replaced(node, f"({text}) * {name}[:, None]", 2.6 + 0.1 * rank)
            yield around.replaced(node, f"({text}) / {name}[:, None]", 2.7 + 0.1 * rank)
            yield around.replaced(node, f"({text}) - {name}[:, None]", 2.8 + 0.1 * rank)
    elif shape is not None and len(shape) == 1:
        for rank, name in enumerate(around.ran.names_of(kind, near=text)[:_FLOATS]):
            if name != text:
                yield around.replaced(node, f"({text}) * {name}", 2.7 + 0.1 * rank)


def _factors_of_a_term(node: ast.expr, around: Around) -> Iterator[Varied]:
    """One term of a sum, a name, lacks a factor that has its shape, or one for each of its rows."""
    parent = around.parent
    if not isinstance(node, ast.Name) or not isinstance(parent, ast.BinOp) or not isinstance(parent.op, _SUMS):
        return
    shape = shape_of(kind := around.kind(node))
    if shape is None or not kind.startswith("float"):
        return
    rows = around.in_kernel and len(shape) == 2
    names = around.ran.names_of(f"float[{shape[0]}]" if rows else kind, near=node.id)
    for rank, name in enumerate([each for each in names if each != node.id][:_FLOATS]):
        yield around.replaced(node, f"({node.id} * {name}{'[:, None]' if rows else ''})", 2.7 + 0.1 * rank)


def conversions(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A tensor that should have been made fp32 before more is done with it."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or not _is_floats(around.kind(node)):
        return
    if isinstance(around.parent, (ast.BinOp, ast.Call, ast.Assign)):
        yield around.replaced(node, f"{node.id}.to(tl.float32)" if around.in_kernel else f"{node.id}.float()", 2.4)


def masks(node: ast.AST, around: Around) -> Iterator[Varied]:
    """A condition that lacks a part which stands elsewhere in the function, and a value that lacks a condition."""
    if not isinstance(node, ast.expr):
        return
    text = around.of(node)
    if _is_condition(node) and not isinstance(around.parent, (ast.BinOp, ast.Compare)):
        for rank, other in enumerate(around.ran.conditions[:_CONDITIONS]):
            if other not in text:
                yield around.replaced(node, f"(({text}) & ({other}))", 2.6 + 0.1 * rank)
    elif around.in_kernel and _is_value(node, around) and _is_floats(_kind(node, around)):
        for rank, other in enumerate(around.ran.conditions[:_CONDITIONS]):
            yield around.replaced(node, f"tl.where({other}, {text}, 0.0)", 2.8 + 0.1 * rank)
            yield around.replaced(node, f'tl.where({other}, {text}, float("-inf"))', 3.0 + 0.1 * rank)


def _is_condition(node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr))
    )


def _is_floats(kind: str) -> bool:
    return kind.startswith("float") and shape_of(kind) is not None


def _is_value(node: ast.expr, around: Around) -> bool:
    """Whether a node is all that a statement assigns, an argument, or a field of what is made."""
    if isinstance(node, (ast.Constant, ast.Starred, ast.Tuple)):
        return False
    parent = around.parent
    if isinstance(parent, (ast.Assign, ast.AugAssign, ast.Return)):
        return node is parent.value
    return isinstance(parent, ast.Call) and any(node is each for each in parent.args)


def _kind(node: ast.AST, around: Around) -> str:
    """The kind of a value, if need be that of the name to which it is assigned, or that of what the function returned."""
    statement = around.statement
    if kind := around.kind(node):
        return kind
    if isinstance(statement, ast.Assign) and node is statement.value and isinstance(statement.targets[0], ast.Name):
        return around.ran.kinds.get(statement.targets[0].id, "")
    return around.ran.returned if isinstance(statement, ast.Return) and node is statement.value else ""

"""Operators on structure: conditions, loops, statements, accumulators, transposition."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from flashverify.mutants.operators.walk import MODULE, Edit
from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.mutants.operators.walk import Place

__all__ = ["NOT_HELD", "STRUCTURE"]

NOT_HELD = "the condition is taken not to hold"

_STORES = frozenset({"store", "store_tile", "store_rows"})
_ONLY_HINTS = ("ALIGNED", "INTERPRETED", "isinstance", "any_visible", "is_cuda", "dispatched", "numel", "programs")
"""Conditions on these decide nothing about values."""


def _where(node: ast.AST, place: Place) -> Iterator[Edit]:
    if not isinstance(node, ast.Call) or called(node) != "where":
        return
    condition, yes, no = (place.source.of(x) for x in node.args)
    name = place.source.of(node.func)
    yield place.replace(node, f"{name}({condition}, {no}, {yes})", "where", "the branches change places")
    yield place.replace(node, f"({yes})", "where", "the condition is taken to hold")
    yield place.replace(node, f"({no})", "where", NOT_HELD)


def _choice(node: ast.AST, place: Place) -> Iterator[Edit]:
    if not isinstance(node, ast.IfExp):
        return
    test = place.source.of(node.test)
    if " is " not in test and not any(word in test for word in _ONLY_HINTS):
        yield place.replace(node, f"({place.source.of(node.body)})", "choice", "the condition is taken to hold")
        yield place.replace(node, f"({place.source.of(node.orelse)})", "choice", NOT_HELD)


def _condition(node: ast.AST, place: Place) -> Iterator[Edit]:
    if not isinstance(node, ast.If):
        return
    test = place.source.of(node.test)
    if any(word in test for word in _ONLY_HINTS):
        return
    if " is not None" in test:
        yield place.replace(node.test, "False", "condition", f"{test} is taken to be False")
    elif " is " not in test:
        for value in ("True", "False"):
            yield place.replace(node.test, value, "condition", f"{test[:60]} is taken to be {value}")


def _loop(node: ast.AST, place: Place) -> Iterator[Edit]:
    """The first or last step is lost, there is one too many, or every second is left out."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return
    if called(node.iter) not in ("range", "static_range"):
        return
    arguments = node.iter.args
    step = place.source.of(arguments[2]) if len(arguments) == 3 else "1"
    stop = arguments[0] if len(arguments) == 1 else arguments[1]
    limit = place.source.of(stop)
    yield place.replace(stop, f"({limit}) - {step}", "loop", "the last step is lost")
    yield place.replace(stop, f"({limit}) + {step}", "loop", "one step too many")
    if len(arguments) > 1:
        first = place.source.of(arguments[0])
        yield place.replace(arguments[0], f"({first}) + {step}", "loop", "the first step is lost")
    if len(arguments) == 3:
        yield place.replace(arguments[2], f"2 * {step}", "loop", "every second step is left out")


def _statement(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A store, an update or a second assignment does not happen."""
    if isinstance(node, ast.AugAssign):
        yield place.replace(node, "pass", "delete", f"{place.source.of(node)[:60]} is left out")
        target, value = place.source.of(node.target), place.source.of(node.value)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            yield place.replace(node, f"{target} = {value}", "accumulate", "set instead of added to")
            sign = "-=" if isinstance(node.op, ast.Add) else "+="
            yield place.replace(node, f"{target} {sign} {value}", "accumulate", "the other sign")
    elif isinstance(node, ast.Assign) and place.function != MODULE:
        names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        if place.defined.issuperset(names):
            yield place.replace(node, "pass", "delete", f"{place.source.of(node)[:60]} is left out")
    elif isinstance(node, ast.Expr) and called(node.value) in _STORES:
        yield place.replace(node, "pass", "delete", f"{place.source.of(node)[:60]} is left out")


def _accumulator(node: ast.AST, place: Place) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and called(node) == "dot" and len(node.args) == 3:
        start = place.source.span(node.args[1])[1]
        yield Edit(start, place.source.span(node.args[2])[1], "", "accumulate", "the accumulator is left out")


def _transposed(node: ast.AST, place: Place) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and called(node) in ("trans", "contiguous", "permute"):
        inner = (
            node.args[0]
            if called(node) == "trans"
            else node.func.value
            if isinstance(node.func, ast.Attribute)
            else node
        )
        yield place.replace(node, place.source.of(inner), "layout", f"{called(node)} is left out")


def _flags(node: ast.AST, place: Place) -> Iterator[Edit]:
    """A compile-time flag that is passed on is forced or flipped."""
    parent = place.parent
    if not isinstance(parent, ast.Call) or not any(node is x for x in parent.args):
        return
    text = place.source.of(node)
    if called(parent) == "head_of":  # the last argument is a hint
        return
    if isinstance(node, ast.Compare) and "FULL" in text:
        values: tuple[str, ...] = ("True", "False")
    elif isinstance(node, ast.Name) and (node.id.startswith("EVEN_") or node.id == "MASKED"):
        values = ("True", "False")
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        values = (str(not node.value),)
    else:
        return
    for value in values:
        yield place.replace(node, value, "constexpr", f"{text} is taken to be {value}")


STRUCTURE: tuple[Callable[[ast.AST, Place], Iterator[Edit]], ...] = (
    _where,
    _choice,
    _condition,
    _loop,
    _statement,
    _accumulator,
    _transposed,
    _flags,
)

"""The edits that are tried of a function, by the statement that they change."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.repair.operators import OPERATORS
from flashverify.repair.operators.around import Around

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.repair.exchange import Edit
    from flashverify.repair.functions import Ran

__all__ = ["Candidate", "Site", "sites", "statements_that_ran"]

_LEFT_ALONE = frozenset(
    {"multiple_of", "max_contiguous", "max_constancy", "static_assert", "debug_barrier", "static_print"}
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An edit that may be the repair.

    Attributes:
        ran: the function that it changes.
        edit: what is replaced.
        cost: how far it is from what stands there.
        node: the expression whose value it changes, or the statement.
    """

    ran: Ran
    edit: Edit
    cost: float
    node: ast.expr | ast.stmt


@dataclass(eq=False)
class Site:
    """A statement that ran, or the head of one, with the edits of it, the cheapest first."""

    ran: Ran
    line: int
    candidates: list[Candidate]


def sites(ran: Ran) -> Iterator[Site]:
    """The statements of a function that ran, with their edits."""
    for statement in statements_that_ran(ran):
        found: dict[tuple[int, int, str], Candidate] = {}
        for node, parent in _own_nodes(statement):
            around = Around(ran, statement, parent)
            for operator in OPERATORS:
                for varied in operator(node, around):
                    key = (varied.edit.start, varied.edit.end, varied.edit.text)
                    if key not in found or found[key].cost > varied.cost:
                        found[key] = Candidate(ran, varied.edit, varied.cost, varied.node)
        if found:
            yield Site(ran, statement.lineno, sorted(found.values(), key=lambda each: each.cost))


def statements_that_ran(ran: Ran) -> Iterator[ast.stmt]:
    """The statements of a function that ran, those that only refuse arguments left out."""
    for statement in _statements(ran.node):
        if any(line in ran.lines for line in range(statement.lineno, (statement.end_lineno or 0) + 1)):
            yield statement


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements inside a function, those of inner functions and what only refuses arguments left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Raise, ast.Assert)):
            continue
        if isinstance(child, ast.stmt):
            if isinstance(child, ast.If) and isinstance(child.body[-1], ast.Raise) and not child.orelse:
                continue
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)) and not _is_hint(child):
                yield child
            yield from _statements(child)
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from _statements(child)


def _is_hint(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    function = value.func if isinstance(value, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr in _LEFT_ALONE


def _own_nodes(statement: ast.stmt) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The nodes of a statement with their parents, without those of the statements inside it and without annotations."""
    yield statement, statement

    def inside(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "ctx", "op", "ops"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr) and not isinstance(child, ast.Lambda):
                    yield child, node
                    yield from inside(child)
                elif isinstance(child, (ast.keyword, ast.comprehension, ast.withitem)):
                    yield from inside(child)

    yield from inside(statement)

"""The copy of a function that holds every edit of it, for a probe."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from flashverify.repair.exchange import code_of
from flashverify.repair.probing import CHOICE, NAME, position

if TYPE_CHECKING:
    from flashverify.repair.functions import Ran
    from flashverify.repair.probing import Probe

__all__ = ["probed"]


def probed(ran: Ran, probe: Probe) -> Any:
    """What runs in place of the function, so that the probe sees its expressions.

    Raises:
        SyntaxError: an edited expression is none.
    """

    def inserted(tree: ast.Module, shift: int) -> ast.Module:
        inserting = _Inserting(probe, shift)
        found: ast.Module = inserting.visit(tree)
        probe.lacks(inserting.left.values())
        return found

    return code_of(ran, inserted, prepared=_Reading(probe).visit)


class _Reading(ast.NodeTransformer):
    """Every loop reads, where it never comes, what the edits in it read: an interpreter looks after the names that a loop reads."""

    def __init__(self, probe: Probe) -> None:
        self._variants = probe.variants

    def visit_For(self, node: ast.For) -> ast.For:
        """A loop, its inner ones before it."""
        self.generic_visit(node)
        within = (x for (first, _, last, *_), x in self._variants.items() if node.lineno <= first <= last <= _end(node))
        every = (each for variants in within for variant in variants.values() for each in ast.walk(variant))
        names = sorted({each.id for each in every if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)})
        read: list[ast.stmt] = [ast.Expr(_name(name)) for name in names]
        node.body.insert(0, ast.If(ast.Constant(value=False), read or [ast.Pass()], []))
        return node


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


class _Inserting(ast.NodeTransformer):
    def __init__(self, probe: Probe, shift: int) -> None:
        self._variants, self.left, self._shift = probe.variants, dict(probe.numbers), shift

    def visit(self, node: ast.AST) -> Any:
        found = super().visit(node)
        if not isinstance(node, (ast.expr, ast.stmt)) or getattr(node, "end_lineno", None) is None:
            return found
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return found
        key = position(node, self._shift)
        number = self.left.get(key)
        if number is None or found is None:
            return found
        del self.left[key]
        variants = list(self._variants[key].values())
        if isinstance(node, ast.expr):
            made: ast.AST = ast.Call(_name(NAME), [ast.Constant(number), found, *map(_lambda, variants)], [])
        else:
            made = _choice(number, found if isinstance(found, list) else [found], variants)
        return ast.copy_location(made, node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _choice(number: int, found: list[ast.stmt], variants: list[Any]) -> ast.stmt:
    """The statements of one edit of several, or what stands there."""
    for at, variant in enumerate(variants):
        chosen = ast.Compare(ast.Call(_name(CHOICE), [ast.Constant(number)], []), [ast.Eq()], [ast.Constant(at)])
        found = [ast.If(chosen, variant.body, found)]
    return found[0]


def _lambda(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)

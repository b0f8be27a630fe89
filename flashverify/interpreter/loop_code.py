"""Kernels rewritten so that programs in lockstep may walk a loop different numbers of times, see `parting`.

    for t in range(start, stop, step):        for t in (parting := BUILDER.loop(carried, read, range, start, stop, step)):
        BODY                                      if parting.turn:
                                                      values = parting.narrow(locals()); NAME = values["NAME"]; ...
                                                  BODY
                                              if parting.parted:
                                                  values = parting.widen(locals()); NAME = values["NAME"]; ...

A loop stays as it is where its body does anything but assign to names, call, decide, and walk other loops.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from flashverify.interpreter.hooks import stock

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["REWRITTEN", "LoopTransformer"]

REWRITTEN: dict[Any, Any] = {}
"""By Python function, what a session runs in its place; it serves every session of the process."""

_BUILDER = "interpreter_semantic.builder"
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.If, ast.For, ast.Pass, ast.Assert)
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
_Base: Any = getattr(stock, "ASTTransformer", ast.NodeTransformer)


def _names(nodes: Iterable[ast.AST], kind: type) -> Counter[str]:
    """How often names are read (`ast.Load`) or assigned to (`ast.Store`)."""
    walked = (x for node in nodes for x in ast.walk(node))
    return Counter(x.id for x in walked if isinstance(x, ast.Name) and isinstance(x.ctx, kind))


def _plain(loop: ast.For) -> bool:
    """Whether the statements of the body are of known kinds, and all targets names."""
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
                return False
            if isinstance(node, _SCOPES) or (isinstance(node, ast.For) and node.orelse):
                return False
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                return False
    return isinstance(loop.target, ast.Name) and not loop.orelse and isinstance(loop.iter, ast.Call)


def _first_read(body: list[ast.stmt], known: set[str], found: set[str]) -> set[str]:
    """Add the names that a body may read before it has assigned to them; those that it surely has assigned to.

    Args:
        body: statements.
        known: names that are assigned to before them.
        found: takes the names.
    """
    known = set(known)
    for node in body:
        if isinstance(node, ast.If):
            found |= set(_names([node.test], ast.Load)) - known
            known = _first_read(node.body, known, found) & _first_read(node.orelse, known, found)
        elif isinstance(node, ast.For):
            found |= set(_names([node.iter], ast.Load)) - known
            _first_read(node.body, known | set(_names([node.target], ast.Store)), found)
        else:
            read = set(_names([node], ast.Load))
            if isinstance(node, ast.AugAssign):
                read |= set(_names([node.target], ast.Store))
            found |= read - known
            known |= set(_names([node], ast.Store))
    return known


class LoopTransformer(_Base):  # type: ignore[misc]
    """What Triton makes of the source of a kernel, and its loops prepared for programs that part."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:  # noqa: N802
        """Every function by itself."""
        return _Function(node).generic_visit(node)


class _Function(LoopTransformer):
    """The same for one function."""

    def __init__(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self._locals = {x.arg for x in every} | set(_names(node.body, ast.Store))
        self._read = _names(node.body, ast.Load)
        self._numbers = itertools.count()

    def visit_For(self, node: ast.For) -> Any:  # noqa: N802
        """Prepare a loop over a range; what depends on the source as it was written is read before its parts are rewritten."""
        target = node.target.id if isinstance(node.target, ast.Name) else ""
        inside, stored = _names(node.body, ast.Load), set(_names(node.body, ast.Store))
        outside = {name for name, times in self._read.items() if times > inside[name]}
        fit = _plain(node) and _over_range(node.iter) and target not in outside | stored
        carried = set(outside)
        _first_read(node.body, {target}, carried)
        self.generic_visit(node)
        if not fit:
            return node
        read = (set(inside) & self._locals) - stored - {target}
        return _prepared(node, sorted(stored & carried), sorted(read), next(self._numbers))


def _over_range(walked: ast.expr) -> bool:
    """Whether it is `range(...)`, of Python or of Triton's language."""
    if not isinstance(walked, ast.Call) or any(isinstance(x, ast.Starred) for x in walked.args):
        return False
    callee = walked.func
    return (isinstance(callee, ast.Name) and callee.id == "range") or (
        isinstance(callee, ast.Attribute) and callee.attr == "range"
    )


def _prepared(loop: ast.For, carried: list[str], read: list[str], number: int) -> list[ast.stmt]:
    """The loop with what `parting` asks for in it and behind it."""
    parting, values = f"_parting_{number}", f"_values_{number}"
    taken = "".join(f"\n    {name} = {values}[{name!r}]" for name in (*carried, *read))
    text = f"""
for _ in ({parting} := {_BUILDER}.loop({tuple(carried)!r}, {tuple(read)!r})):
    pass
if {parting}.turn:
    {values} = {parting}.narrow(locals()){taken}
if {parting}.parted:
    {values} = {parting}.widen(locals()){taken}
"""
    walk, narrow, widen = ast.parse(text).body
    assert isinstance(walk, ast.For)
    assert isinstance(walk.iter, ast.NamedExpr)
    assert isinstance(walk.iter.value, ast.Call)
    assert isinstance(loop.iter, ast.Call)
    walk.iter.value.args += [loop.iter.func, *loop.iter.args]
    walk.iter.value.keywords = loop.iter.keywords
    for made in (walk.iter, narrow, widen):
        for node in ast.walk(made):
            if "lineno" in node._attributes:
                ast.copy_location(node, loop)
    loop.iter = walk.iter
    loop.body.insert(0, narrow)
    return [loop, widen]

"""Mutation operators for Triton code: what an edit is, and the walk that applies all operators to a file.

An operator looks at one node of the syntax tree and gives edits of the source text, so that everything else keeps its
formatting. Names of mutants count the edits of one operator within one function, and so do not depend on other functions.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.source_text import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MODULE", "PERFORMANCE", "Change", "Edit", "Place", "Source", "changes"]

MODULE = "module"
"""Stands for the function of what is assigned outside of functions."""
_HINTS = frozenset({"multiple_of", "max_contiguous", "max_constancy", "static_assert", "debug_barrier"})
PERFORMANCE = frozenset(
    ("num_warps", "num_stages", "enable_fp_fusion", "input_precision", "device", "aligned", "rows_aligned")
)
"""Names of arguments that say how something is launched, or are promises to the compiler."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in a file.

    Attributes:
        start: first replaced character.
        end: the one after the last.
        text: what takes its place.
        operator: short name of the operator, of lower-case letters and underscores.
        words: what was done, for people.
    """

    start: int
    end: int
    text: str
    operator: str
    words: str


@dataclass(frozen=True, slots=True)
class Change:
    """An edit with its place: `function` names the function, `within` holds what must hold for the edited code to run."""

    edit: Edit
    function: str
    within: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands.

    Attributes:
        source: the file.
        function: name of the innermost named function, or `MODULE`.
        parents: the enclosing nodes, outermost first.
        defined: names that have a value in the function before the statement of the node.
    """

    source: Source
    function: str
    parents: tuple[ast.AST, ...]
    defined: frozenset[str]

    @property
    def parent(self) -> ast.AST:
        """The enclosing node."""
        return self.parents[-1]

    def replace(self, node: ast.AST, text: str, operator: str, words: str) -> Edit:
        """The edit that replaces a node."""
        return Edit(*self.source.span(node), text, operator, words)


def changes(source: Source, operators: tuple[Callable[[ast.AST, Place], Iterator[Edit]], ...]) -> Iterator[Change]:
    """All changes of a file that alter what it computes, those of a function in the order of the source.

    Docstrings, annotations, messages of errors, hints to the compiler and launch options are left alone, and no two changes
    give the same program.
    """
    seen = {_squeezed(source.text)}
    for node, place, within in _nodes(source):
        for operator in operators:
            for edit in operator(node, place):
                text = source.text[: edit.start] + edit.text + source.text[edit.end :]
                squeezed = _squeezed(text)
                if squeezed not in seen:
                    seen.add(squeezed)
                    yield Change(edit, place.function, within)


def _held(node: ast.AST, field: str, source: Source) -> tuple[str, ...]:
    """The condition, as far as it is known, under which a branch of `node` is taken."""
    if not isinstance(node, (ast.If, ast.IfExp)):
        return ()
    test = source.of(node.test)
    if field == "orelse" and test.endswith(" is None"):
        return (test.replace(" is None", " is not None"),)
    return (test,) if field == "body" else ()


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _nodes(source: Source) -> Iterator[tuple[ast.AST, Place, tuple[str, ...]]]:
    """Every node that may be changed, with its place and the conditions under which it is reached."""

    def walk(
        node: ast.AST, function: str, parents: tuple[ast.AST, ...], within: tuple[str, ...], defined: set[str]
    ) -> Iterator[tuple[ast.AST, Place, tuple[str, ...]]]:
        if _left_alone(node, parents):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            inner = {a.arg for a in arguments}
            for child in node.body:
                yield from walk(child, node.name, (*parents, node), within, inner)
            return
        yield node, Place(source, function, parents, frozenset(defined)), within
        for field, value in ast.iter_fields(node):
            if isinstance(node, ast.AnnAssign) and field == "annotation":
                continue
            under = (*within, *_held(node, field, source))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _launch_option(node, child):
                    yield from walk(child, function, (*parents, node), under, defined)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}

    for statement in source.tree.body:
        yield from walk(statement, MODULE, (source.tree,), (), set())


def _only_raises(node: ast.stmt) -> bool:
    """Whether a statement does nothing but refuse arguments."""
    if isinstance(node, (ast.If, ast.For)) and not node.orelse:
        return isinstance(node.body[-1], ast.Raise) or all(_only_raises(child) for child in node.body)
    return isinstance(node, (ast.Raise, ast.Assert)) or _checks(node)


def _checks(node: ast.AST) -> bool:
    """Whether a statement calls a function that checks arguments."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    return isinstance(function, ast.Name) and function.id.lstrip("_").startswith("check_")


def _launch_option(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` is the value of a launch option in a dict display."""
    if not isinstance(node, ast.Dict):
        return False
    keys = [key for key, value in zip(node.keys, node.values, strict=True) if value is child]
    return any(isinstance(key, ast.Constant) and key.value in PERFORMANCE for key in keys)


def _left_alone(node: ast.AST, parents: tuple[ast.AST, ...]) -> bool:
    """Whether nothing in `node` changes what is computed."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.arguments)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.keyword) and node.arg in PERFORMANCE:
        return True
    if isinstance(node, (ast.If, ast.For, ast.Expr)) and _only_raises(node):
        return True
    if isinstance(node, (ast.Assign, ast.Expr)) and isinstance(node.value, ast.Call):
        called = node.value.func
        if isinstance(called, ast.Attribute) and called.attr in _HINTS:
            return True
    return isinstance(node, ast.AnnAssign) and parents[-1].__class__ is ast.ClassDef

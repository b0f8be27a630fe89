"""How the functions of a subject write the same thing elsewhere: what stands at the place of an argument, is assigned to a name, or changes its value."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from flashverify.source_text import called

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.source_text import Source

__all__ = ["Family"]

_LONGEST = 200
"""Characters of a text that may stand elsewhere too."""


class Family:
    """Expressions by where they stand.

    Args:
        functions: each with the source that holds it.
    """

    def __init__(self, functions: Iterable[tuple[Source, ast.FunctionDef]]) -> None:
        self._arguments: dict[tuple[str, int | str], dict[str, frozenset[str]]] = defaultdict(dict)
        self._assigned: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        self._updates: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        self._keywords: dict[str, dict[str, None]] = defaultdict(dict)
        for source, function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and (name := called(node)):
                    for place, argument in _arguments(node):
                        _add(self._arguments[name, place], source, argument)
                        if isinstance(place, str):
                            self._keywords[name][place] = None
                elif isinstance(node, ast.Assign):
                    for target in node.targets:
                        _add(self._assigned[source.of(target)], source, node.value)
                if isinstance(node, (ast.Assign, ast.AugAssign)) and (name := _changed(node)):
                    _add(self._updates[name], source, node)

    def arguments(self, call: ast.Call) -> Iterable[tuple[ast.expr, str, frozenset[str]]]:
        """For each argument of a call, what calls of the same function have in its place, with the names that this reads."""
        name = called(call)
        for place, argument in _arguments(call) if name else ():
            for text, names in self._arguments.get((name, place), {}).items():
                yield argument, text, names

    def missing(self, call: ast.Call) -> Iterable[tuple[str, str, frozenset[str]]]:
        """The arguments by name that other calls of the same function have, with the names that each reads."""
        has = {keyword.arg for keyword in call.keywords}
        for keyword in self._keywords.get(called(call), ()):
            if keyword not in has:
                for text, names in self._arguments[called(call), keyword].items():
                    yield keyword, text, names

    def updates(self, target: str) -> Iterable[tuple[str, frozenset[str]]]:
        """The statements that make a new value of the one of a name, with the names that each reads."""
        return self._updates.get(target, {}).items()

    def assigned(self, target: str) -> Iterable[tuple[str, frozenset[str]]]:
        """What is assigned to a target of this text, with the names that it reads."""
        return self._assigned.get(target, {}).items()


def _changed(node: ast.Assign | ast.AugAssign) -> str:
    """The name that a statement gives a value made of the one that it had; empty where it does not."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node.value)) else ""
    return ""


def _arguments(call: ast.Call) -> list[tuple[int | str, ast.expr]]:
    plain: list[tuple[int | str, ast.expr]] = [
        (number, x) for number, x in enumerate(call.args) if not isinstance(x, ast.Starred)
    ]
    return plain + [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None]


def _add(texts: dict[str, frozenset[str]], source: Source, node: ast.expr | ast.stmt) -> None:
    text = " ".join(source.of(node).split())
    if len(text) <= _LONGEST:
        texts[text] = frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))

"""The functions of a subject's own modules, and what changed of them between two sides."""

from __future__ import annotations

import ast
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ChangedFunction", "Code", "changed_functions", "functions_of"]

_HARNESS = ("flashverify", "flashverify_oracles")
_REST = "(module level)"
_MOST_LINES = 60


class Code(msgspec.Struct, frozen=True):
    """A function: what it does, without comments, and its source."""

    meaning: str
    source: str


class ChangedFunction(msgspec.Struct, frozen=True):
    """A function that differs, is new or is gone.

    Attributes:
        name: file and qualified name.
        change: `changed`, `added` or `removed`.
        diff: unified, at most some sixty lines.
    """

    name: str
    change: str
    diff: str


def functions_of(folder: Path) -> dict[str, Code]:
    """The functions of every module that this process imported from a folder, by file and qualified name.

    Comments and layout are no part of the meaning. What a virtual environment inside the folder holds, and the harness, are left out.
    """
    found: dict[str, Code] = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name.partition(".")[0] in _HARNESS:
            continue
        path = Path(file).resolve()
        if not path.is_relative_to(folder) or {"site-packages", "dist-packages"} & set(path.relative_to(folder).parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            continue
        found |= _functions(str(path.relative_to(folder)), text, tree)
    return found


def _functions(file: str, text: str, tree: ast.Module) -> dict[str, Code]:
    found: dict[str, Code] = {}
    rest: list[ast.stmt] = []

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"{file}:{prefix}{node.name}"] = Code(_meaning(node), _source(text, node))
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            else:
                rest.append(node)

    visit(tree.body, "")
    statements = [node for node in rest if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    source = "\n".join(ast.unparse(node) for node in statements)
    return found | {f"{file}:{_REST}": Code(source, source)}


def _meaning(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    bare = type(node)(**{name: getattr(node, name) for name in node._fields} | {"body": body or [ast.Pass()]})
    return ast.unparse(ast.fix_missing_locations(ast.copy_location(bare, node)))


def _source(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def changed_functions(before: Mapping[str, Code], after: Mapping[str, Code]) -> tuple[ChangedFunction, ...]:
    """The functions whose meaning differs, those that only one side has last."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            found.append(ChangedFunction(name, "added" if old is None else "removed", ""))
        elif old.meaning != new.meaning:
            lines = list(difflib.unified_diff(old.source.split("\n"), new.source.split("\n"), n=2, lineterm=""))[2:]
            kept = lines[:_MOST_LINES] + (
                [f"... {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else []
            )
            found.append(ChangedFunction(name, "changed", "\n".join(kept)))
    return tuple(sorted(found, key=lambda each: (each.change != "changed", each.name)))

"""Where a subject is defined, found without importing it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.subjects.registry import target_of

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["module_file", "source_of"]


def source_of(spec: str) -> tuple[Path, int] | None:
    """The file that defines a subject, and the line; None where no file is found.

    Args:
        spec: what `load_subject` takes.
    """
    module, _, attribute = target_of(spec).partition(":")
    file = Path(module).resolve() if module.endswith(".py") else module_file(module)
    if file is None or not file.is_file():
        return None
    return file, _line(file, attribute.partition(".")[0])


def module_file(module: str) -> Path | None:
    """The file that an import of a dotted name would find; None where there is none."""
    where, found = None, None
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        found = _spec(".".join(parts[:number]), where)
        if found is None:
            return None
        where = found.submodule_search_locations
    return None if found is None or found.origin is None else Path(found.origin).resolve()


def _spec(name: str, where: object) -> ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            found = finder.find_spec(name, where)  # type: ignore[arg-type]
        except (ImportError, AttributeError, ValueError):
            continue
        if found is not None:
            return found
    return None


def _line(file: Path, name: str) -> int:
    """The line of a definition or an assignment at the top of a file; 1 where there is none."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return 1
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = {node.name}
        if name in names:
            return node.lineno
    return 1

"""Whether there can be a subject of a name, answered without importing it."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.errors import SubjectLoadError
from flashverify.subjects.registry import REGISTERED, target_of

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["require_findable"]


def require_findable(spec: str) -> None:
    """Refuses the name of a subject that certainly cannot be loaded; imports nothing.

    Args:
        spec: what `load_subject` takes.

    Raises:
        SubjectLoadError: it is no registered name, no entry point and no `module:name`, or there is no such file or module.
    """
    module, separator, attribute = target_of(spec).partition(":")
    if not separator or not module or not attribute:
        registered = [entry.name for entry in REGISTERED]
        near = difflib.get_close_matches(
            spec, [*registered, *(p.name for p in entry_points(group="flashverify.subjects"))], 1
        )
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SubjectLoadError(
            f"subject {spec!r} is not known: one of {', '.join(registered)}, an entry point, or module:name{hint}"
        )
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise SubjectLoadError(f"subject {spec!r}: there is no file {module!r}")
    elif missing := _missing(module):
        raise SubjectLoadError(f"subject {spec!r} cannot be imported: No module named {missing!r}")


def _missing(module: str) -> str:
    """The part of a dotted name that no finder knows; empty where that cannot be told without importing it."""
    if module in sys.modules:
        return ""
    searched = sys.path
    if os.getcwd() not in searched:
        sys.path = [*searched, os.getcwd()]
    try:
        importlib.invalidate_caches()
        parts, where = module.split("."), None
        for number in range(1, len(parts) + 1):
            name = ".".join(parts[:number])
            found = _found(name, where)
            if found is None:
                return name
            where = found.submodule_search_locations
            if where is None or _changes_its_modules(found):
                return ""
        return ""
    except (ImportError, AttributeError, ValueError):
        return ""
    finally:
        sys.path = searched


def _found(name: str, where: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if (found := finder.find_spec(name, where)) is not None:
            return found
    return None


def _changes_its_modules(package: ModuleSpec) -> bool:
    """Whether a package may hold modules that its folder does not."""
    if package.origin is None or not package.origin.endswith(".py"):
        return package.origin is not None
    text = Path(package.origin).read_text(encoding="utf-8", errors="replace")
    return "sys.modules" in text or "__path__" in text

"""Subjects from another copy of a project: a folder, or a revision that was checked out into one.

The copy's modules come before those of the project that this process works in. The harness itself stays the one that runs.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.errors import SubjectLoadError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["enter_sources", "require_own_sources", "sources_environment"]

_VARIABLE = "_FLASHVERIFY_SOURCES"
_HARNESS = ("flashverify", "flashverify_oracles")
_STARTED = ("__main__", "__mp_main__")
"""What the process was started with: a module of the harness, too."""
_SHOWN = 5


def sources_environment(folder: Path, project: Path, working: Path) -> dict[str, str]:
    """The variables of a process whose subjects come from another copy.

    Args:
        folder: the copy.
        project: the copy that this process works in.
        working: the directory in which specs are read, inside `folder`.
    """
    return {_VARIABLE: json.dumps([str(path.resolve()) for path in (folder, project, working)])}


class _Copy(MetaPathFinder):
    """Finds the top modules of a copy in its folders, each at the place that it has in the project."""

    def __init__(self, folder: Path, project: Path) -> None:
        here = [Path(entry or os.getcwd()).resolve() for entry in sys.path]
        places = [
            folder / "src",
            folder,
            *(folder / path.relative_to(project) for path in here if _within(path, project)),
        ]
        self.paths = [str(path) for path in dict.fromkeys(places) if path.is_dir()]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or fullname in _HARNESS or fullname in sys.stdlib_module_names:
            return None
        return PathFinder.find_spec(fullname, self.paths, target)


def enter_sources() -> None:
    """Take modules from the copy that the environment names; nothing where it names none. Once in a process."""
    copy = _named()
    if copy is None or any(isinstance(finder, _Copy) for finder in sys.meta_path):
        return
    folder, project, working = copy
    os.chdir(working)
    sys.meta_path.insert(0, _Copy(folder, project))


def require_own_sources(spec: str) -> None:
    """Refuse a subject whose modules come from the project that this process works in, not from the copy that was named.

    Raises:
        SubjectLoadError: some do: a path that the project's own code inserts came first.
    """
    copy = _named()
    if copy is None:
        return
    folder, project, _ = copy
    strangers = sorted(
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] not in (*_HARNESS, *_STARTED)
        and (file := getattr(module, "__file__", None))
        and _within(Path(file).resolve(), project)
        and not _within(Path(file).resolve(), folder)
    )
    if strangers:
        shown = ", ".join(strangers[:_SHOWN]) + (", ..." if len(strangers) > _SHOWN else "")
        raise SubjectLoadError(
            f"subject {spec!r} of {folder} imports {shown} from {project}, another copy of the project"
        )


def _named() -> tuple[Path, Path, Path] | None:
    text = os.environ.get(_VARIABLE, "")
    if not text:
        return None
    folder, project, working = map(Path, json.loads(text))
    return folder, project, working


def _within(path: Path, folder: Path) -> bool:
    """Whether a path belongs to a copy of the project; what is installed in a virtual environment inside it does not."""
    try:
        inside = path.relative_to(folder)
    except ValueError:
        return False
    return not {"site-packages", "dist-packages"} & set(inside.parts)

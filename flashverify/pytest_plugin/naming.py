"""The name by which a process of its own loads the subject of a marker."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.errors import UsageError
from flashverify.subjects.source import module_file

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["SubjectName", "name_of"]


@dataclass(frozen=True, slots=True)
class SubjectName:
    """What `--subject` takes: `load` in any folder, `shown` in the root folder of the tests; seeds hang on `shown`."""

    load: str
    shown: str


def name_of(subject: object, module: ModuleType, root: Path) -> SubjectName:
    """The name of a subject.

    Args:
        subject: what `--subject` takes, or an object that a module holds by a name.
        module: of the test.
        root: folder of the tests, from which files are shown.

    Raises:
        UsageError: it has no name.
    """
    if isinstance(subject, str):
        file, colon, attribute = subject.partition(":")
        if colon and file.endswith(".py"):
            return SubjectName(f"{(root / file).resolve()}:{attribute}", subject)
        return SubjectName(subject, subject)
    for owner in _owners(subject, module):
        name = next((key for key, value in vars(owner).items() if value is subject and not key.startswith("__")), "")
        path = Path(getattr(owner, "__file__", None) or "").resolve()
        if name and module_file(owner.__name__) == path:
            return SubjectName(f"{owner.__name__}:{name}", f"{owner.__name__}:{name}")
        if name and path.is_file():
            shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            return SubjectName(f"{path}:{name}", f"{shown}:{name}")
    raise UsageError(
        f"subject={subject!r:.100} is not accepted in @pytest.mark.flashverify: no module holds it under a name, so that another process "
        "cannot load it; accepted: a registered name, module:name, file.py:name, or an object at the top of a module"
    )


def _owners(subject: object, module: ModuleType) -> list[ModuleType]:
    """Modules that may hold the subject: of its function, of the test, and of its class."""
    names = (getattr(getattr(subject, "function", None), "__module__", None), type(subject).__module__)
    found = [sys.modules.get(name) if isinstance(name, str) else None for name in names]
    return [owner for owner in (found[0], module, found[1]) if owner is not None]

"""Builds a mutant: a copy of the bundled kernels under another package name, with one change."""

from __future__ import annotations

import functools
import importlib.util
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from flashverify.errors import UsageError
from flashverify.mutants.mutant import SUBJECTS
from flashverify.subjects.bundled_hopper import HOPPER_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.mutants.mutant import Mutant

__all__ = ["build_mutant", "changed_text", "kernel_files", "line_of"]

_PACKAGE = "flashverify_kernels"


@functools.cache
def kernel_files() -> Mapping[str, str]:
    """The source of the bundled kernels: text by path in the package, in the order of the paths; read once."""
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = Path(spec.submodule_search_locations[0])
    files = {
        path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))
    }
    return MappingProxyType(files)


def changed_text(mutant: Mutant) -> str:
    """The text of `mutant.file` with the defect.

    Raises:
        UsageError: the change does not apply in exactly one place.
    """
    text = kernel_files().get(mutant.file, "")
    _require_once(mutant, text)
    return text.replace(mutant.before, mutant.after)


def line_of(mutant: Mutant) -> int:
    """The first line of `mutant.file` that the change concerns, from 1; 0 where it changes nothing.

    Raises:
        UsageError: the change does not apply in exactly one place.
    """
    changed = changed_text(mutant)
    pairs = zip_longest(kernel_files()[mutant.file].splitlines(), changed.splitlines())
    return next((number for number, (old, new) in enumerate(pairs, 1) if old != new), 0)


def build_mutant(mutant: Mutant, folder: Path) -> str:
    """Writes the mutated package and a subject module into `folder`.

    Args:
        mutant: the defect to plant.
        folder: where to write; created if missing.

    Returns:
        What to pass to `--subject`: `<folder>/<name>_subject.py:SUBJECT`.

    Raises:
        UsageError: the change does not apply in exactly one place, or the mutant names no known subject.
    """
    if mutant.subject not in SUBJECTS:
        raise UsageError(f"mutant {mutant.name!r}: subject={mutant.subject!r} is not one of {', '.join(SUBJECTS)}")
    package, changed = f"mutant_{mutant.name}", changed_text(mutant)
    for name, text in kernel_files().items():
        if name == mutant.file:
            text = changed
        target = folder / package / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(_PACKAGE, package), encoding="utf-8")
    module = folder / f"{package}_subject.py"
    adapter, _, kind = SUBJECTS[mutant.subject].partition(":")
    given = f'package="{package}", name="{mutant.name}"'
    if mutant.subject == "bundled" and mutant.file.startswith(HOPPER_FILES):
        given += ", hopper=True"  # the defect is in the kernels that every other mutant leaves out
    module.write_text(
        f"from {adapter} import {kind}\n\nSUBJECT = {kind}({given})\n",
        encoding="utf-8",
    )
    return f"{module}:SUBJECT"


def _require_once(mutant: Mutant, text: str) -> None:
    count = text.count(mutant.before)
    if count != 1:
        raise UsageError(f"mutant {mutant.name!r}: {mutant.before!r} occurs {count} times in {mutant.file}, not once")

"""Builds a mutant: a copy of the bundled kernels under another package name, with one change."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.errors import UsageError
from flashverify.mutants.mutant import SUBJECTS

if TYPE_CHECKING:
    from flashverify.mutants.mutant import Mutant

__all__ = ["build_mutant"]

_PACKAGE = "flashverify_kernels"


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
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = Path(spec.submodule_search_locations[0])
    package = f"mutant_{mutant.name}"
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        text = path.read_text()
        if str(relative) == mutant.file:
            count = text.count(mutant.before)
            if count != 1:
                raise UsageError(
                    f"mutant {mutant.name!r}: {mutant.before!r} occurs {count} times in {mutant.file}, not once"
                )
            text = text.replace(mutant.before, mutant.after)
        target = folder / package / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(_PACKAGE, package))
    module = folder / f"{package}_subject.py"
    adapter, _, kind = SUBJECTS[mutant.subject].partition(":")
    module.write_text(f'from {adapter} import {kind}\n\nSUBJECT = {kind}(package="{package}", name="{mutant.name}")\n')
    return f"{module}:SUBJECT"

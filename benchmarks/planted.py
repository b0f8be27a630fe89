"""Defects to plant: those of the curated bank, of a Python file or of every file of a folder."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

from flashverify.mutants import build_mutant
from flashverify.mutants.bank import CURATED

if TYPE_CHECKING:
    from pathlib import Path

    from flashverify.mutants import Mutant

__all__ = ["defects_of", "plant"]


def defects_of(path: Path | None) -> tuple[Mutant, ...]:
    """The `DEFECTS` of a file or of every file of a folder; those of the curated bank for None."""
    if path is None:
        return CURATED
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return tuple(defect for file in files for defect in runpy.run_path(str(file))["DEFECTS"])


def plant(defect: Mutant, folder: Path) -> str:
    """Writes a subject with the defect, of the bundled kernels or of a kernel of its own, into `folder`; returns what to pass to `--subject`."""
    own = getattr(defect, "plant", None)
    return build_mutant(defect, folder) if own is None else str(own(folder))

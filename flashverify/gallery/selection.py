"""Which kernels are judged, at which versions: the words of the command line against the catalogue."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from flashverify.errors import UsageError
from flashverify.gallery.catalogue import CATALOGUE
from flashverify.gallery.place import TUTORIAL, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.gallery.release import Kernel, Release

__all__ = ["choose", "use_tutorial", "use_versions", "version_of"]


def choose(names: Sequence[str], *, tutorial: bool) -> list[tuple[Release, Kernel]]:
    """The kernels of these releases, or all of them; `release:kernel` names one kernel.

    Args:
        names: of the command line.
        tutorial: whether the tutorial's file is given; otherwise it is left out, unless it is named.

    Raises:
        UsageError: a name is not in the catalogue.
    """
    known = [(release, kernel) for release in CATALOGUE for kernel in release.kernels]
    if not names:
        return [(release, kernel) for release, kernel in known if tutorial or not release.file]
    found: list[tuple[Release, Kernel]] = []
    for name in names:
        chosen = [pair for pair in known if name in (pair[0].name, f"{pair[0].name}:{pair[1].name}")]
        if not chosen:
            kernels = [kernel.name for release, kernel in known if release.name == name.partition(":")[0]]
            accepted = [f"{name.partition(':')[0]}:{kernel}" for kernel in kernels] or [r.name for r in CATALOGUE]
            raise UsageError(f"NAME={name!r} is not in the gallery: one of {', '.join(accepted)}")
        found += [pair for pair in chosen if pair not in found]
    if not tutorial and any(release.file for release, _ in found):
        raise UsageError("--tutorial is missing: the tutorial is judged from a file that you name")
    return found


def use_versions(wanted: Iterable[str], chosen: Iterable[Release]) -> None:
    """Judge these versions instead of the tried ones: `NAME==VERSION`, NAME of the gallery.

    Raises:
        UsageError: one has another form, or names a release that is not judged, or one that is not fetched.
    """
    fetched = {release.name: release for release in chosen if release.distribution}
    for text in wanted:
        match = re.fullmatch(r"([\w-]+)==([\w.+!-]+)", text)
        if match is None:
            raise UsageError(f"--version {text!r} is not accepted: NAME==VERSION, such as vllm==0.33.0")
        if match[1] not in fetched:
            raise UsageError(f"--version {text!r} names no fetched release that is judged: one of {', '.join(fetched)}")
        os.environ[VERSION + match[1].upper()] = match[2]


def use_tutorial(file: str) -> None:
    """Judge the tutorial's kernel in this file.

    Raises:
        UsageError: it is no readable Python file.
    """
    path = Path(file).absolute()
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(
            f"--tutorial {file!r} is not accepted: a Python file, 06-fused-attention.py of Triton's tutorials"
        )
    os.environ[TUTORIAL] = str(path)


def version_of(release: Release) -> str:
    """The version that is judged: of a file its hash, of what is never fetched the installed one."""
    if release.file:
        return hashlib.sha256(Path(os.environ[TUTORIAL]).read_bytes()).hexdigest()[:16]
    if not release.distribution:
        return importlib.metadata.version("torch")
    return os.environ.get(VERSION + release.name.upper(), release.version)

"""Which files are the subject's own."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache

__all__ = ["is_own"]

_HARNESS = ("flashverify", "flashverify_oracles", "torch", "triton", "numpy", "msgspec", "mpmath", "hypothesis")
"""Packages that are not the subject's own."""
_SUBJECTS = ("subjects/examples/", "gallery/kernels/")
"""Folders of the harness that hold subjects."""
_INSTALLED = {"site-packages", "dist-packages"}


@cache
def is_own(file: str) -> bool:
    """Whether a file is the subject's."""
    if file.startswith("<"):
        return False
    path = os.path.realpath(file)
    package = next((root for root in _packages() if path.startswith(root)), None)
    if package is not None:
        return package.endswith("flashverify/") and path.removeprefix(package).startswith(_SUBJECTS)
    library = os.path.join(os.path.realpath(sysconfig.get_paths()["stdlib"]), "")
    return not path.startswith(library) or _INSTALLED.intersection(path.split(os.sep)) != set()


@cache
def _packages() -> tuple[str, ...]:
    """Folders of packages whose functions are nobody's subject."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _HARNESS)
    return tuple(os.path.join(os.path.dirname(os.path.realpath(file)), "") for file in files if file)

"""A module from a file, whatever other modules are called."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

__all__ = ["module_of_file"]


def module_of_file(path: Path) -> ModuleType:
    """The module that `path` holds, executed once.

    Its name is that of the file where `import` by that name finds this very file, so that other modules that import it get the same
    one. Otherwise the name is the file's with a hash of its place: a `random.py` beside a kernel then stays out of the way of the
    standard library.

    Args:
        path: absolute.

    Raises:
        ImportError: the file is no module, or something that it imports is missing.
    """
    name = path.stem
    if _imports(name, path):
        return importlib.import_module(name)
    name = f"{name}_{hashlib.blake2b(str(path).encode(), digest_size=6).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _imports(name: str, path: Path) -> bool:
    """Whether `import name` gives the module of `path`."""
    if not name.isidentifier():
        return False
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, as `__main__`
        return False
    return spec is not None and spec.origin == str(path)

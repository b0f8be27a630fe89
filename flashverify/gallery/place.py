"""Where the releases lie on this machine, and how an adapter imports from one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.errors import NoVerdictError
from flashverify.gallery.stubs import import_without

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.gallery.release import Release

__all__ = ["FOLDER", "TUTORIAL", "VERSION", "folder_of", "module_of_file", "modules_of", "wanted_version"]

FOLDER = "ATTENTION_GALLERY"
"""The environment variable that names the folder of the releases."""
VERSION = "ATTENTION_GALLERY_VERSION_"
"""Begins the environment variable that names another version of a release than the tried one."""

TUTORIAL = "ATTENTION_GALLERY_TUTORIAL"
"""The environment variable that names the file of Triton's tutorial."""


def wanted_version(release: Release) -> str:
    """The version that is judged."""
    return os.environ.get(VERSION + release.name.upper(), release.version)


def folder_of(release: Release) -> Path:
    """Where its files are, or will be unpacked."""
    place = os.environ.get(FOLDER) or Path.home() / ".cache" / "flashverify" / "gallery"
    return Path(place).absolute() / f"{release.name}-{wanted_version(release)}"


def modules_of(release: Release, values: Mapping[str, Mapping[str, object]] | None = None) -> Any:
    """A function that imports a module of the release by its name.

    Args:
        release: an entry of the catalogue.
        values: attributes of its stubs that must not be just anything, by module.

    Raises:
        NoVerdictError: the release is not installed.
    """
    folder = folder_of(release)
    if not folder.is_dir():
        raise NoVerdictError(
            f"{release.distribution} {wanted_version(release)} is not installed in {folder.parent}: "
            f"`flashverify gallery {release.name}` installs and judges it"
        )
    sys.path.insert(0, str(folder))
    import_without(release.bare, release.stubs, values)
    return importlib.import_module


def module_of_file() -> Any:
    """The tutorial's file as a module.

    Raises:
        NoVerdictError: no file is named, or it cannot be loaded.
    """
    file = os.environ.get(TUTORIAL)
    spec = importlib.util.spec_from_file_location("fused_attention_tutorial", file) if file else None
    if spec is None or spec.loader is None:
        raise NoVerdictError(f"{TUTORIAL} names no Python file: `flashverify gallery tutorial --tutorial FILE` sets it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

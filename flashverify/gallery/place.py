"""Where the releases lie on this machine, and how an adapter imports from one."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.errors import NoVerdictError
from flashverify.gallery.stubs import import_without

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flashverify.gallery.release import Release

__all__ = ["FOLDER", "VERSION", "folder_of", "modules_of", "wanted_version"]

FOLDER = "ATTENTION_GALLERY"
"""The environment variable that names the folder of the releases."""
VERSION = "ATTENTION_GALLERY_VERSION_"
"""Begins the environment variable that names another version of a release than the tried one."""


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

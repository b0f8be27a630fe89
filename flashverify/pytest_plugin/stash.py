"""What the plugin keeps in the configuration of pytest, and the folder that the workers of xdist share. Imports nothing but pytest."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flashverify.pytest_plugin.runtime import Runtime

__all__ = ["ANNOUNCED", "RUNTIME", "SHARED", "USED", "folder_of", "leave_word", "marked", "runtime_of", "shared_folder"]

RUNTIME: pytest.StashKey[Runtime] = pytest.StashKey()
SHARED: pytest.StashKey[tempfile.TemporaryDirectory[str]] = pytest.StashKey()
USED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether this process collected marked tests."""
ANNOUNCED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the terminal says on what they are judged."""
_MARKED = "marked"


def runtime_of(config: pytest.Config) -> Runtime:
    """The runtime of this process, made when it is first asked for.

    Raises:
        UsageError: an option or a setting is not accepted.
    """
    if RUNTIME not in config.stash:
        from flashverify.pytest_plugin.runtime import Runtime

        config.stash[RUNTIME] = Runtime(config)
    return config.stash[RUNTIME]


def shared_folder(config: pytest.Config) -> Path:
    """The folder that this process made for itself and its workers; removed at the end."""
    if SHARED not in config.stash:
        config.stash[SHARED] = tempfile.TemporaryDirectory(prefix="flashverify-pytest-", ignore_cleanup_errors=True)
    return Path(config.stash[SHARED].name)


def folder_of(config: pytest.Config) -> Path:
    """The folder that all processes of the session share; a worker on another machine has one of its own."""
    given = Path(getattr(config, "workerinput", {}).get("flashverify_folder", ""))
    return given if given.is_absolute() and given.is_dir() else shared_folder(config)


def leave_word(config: pytest.Config) -> None:
    """Says that this worker collected marked tests."""
    (folder_of(config) / _MARKED).touch()


def marked(config: pytest.Config) -> bool:
    """Whether a worker said so."""
    return SHARED in config.stash and (shared_folder(config) / _MARKED).exists()

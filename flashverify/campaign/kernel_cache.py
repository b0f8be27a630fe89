"""Where the compiled kernels of a campaign are kept from one run to the next: a folder for each source of subjects."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CACHE_VARIABLE", "cache_environment", "folder_size", "torch_environment"]

CACHE_VARIABLE = "TRITON_CACHE_DIR"
_BINARY_ONLY = "TRITON_STORE_BINARY_ONLY"
"""Intermediate code is most of what is stored, and of what a process that loads a kernel reads and keeps in its memory."""
_TORCH_CACHE, _TORCH_THREADS = "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"
"""What torch's compiler keeps on the disk, and the processes in which it compiles: the workers of a campaign are many already."""
_KEPT = 8
"""Folders that are kept, those used last."""


def cache_environment(specs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the caches of Triton and of torch's compiler for the processes of a campaign.

    Triton's folder is the one that is set, or one of ours, which holds binaries alone; that of torch's compiler lies in it.

    Triton looks up a kernel by its source, its arguments, its options, the compiler and the GPU. So a folder never gives a wrong kernel;
    one for each source lets old ones go. The folder is `flashverify/triton/<subjects>-<hash>` in `$XDG_CACHE_HOME` or `~/.cache`.

    Args:
        specs: of the subjects.
        environ: the environment of this process.
    """
    if given := environ.get(CACHE_VARIABLE):
        return {CACHE_VARIABLE: given} | torch_environment(given, environ)
    base = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flashverify" / "triton"
    slug = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(specs)).strip("-")[:40]
    folder = base / f"{slug}-{_hash(specs)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        _prune(base)
    except OSError:
        return {}
    own = {_BINARY_ONLY: environ.get(_BINARY_ONLY, "1"), CACHE_VARIABLE: str(folder)}
    return own | torch_environment(str(folder), environ)


def torch_environment(folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of torch's compiler, as far as they are not set.

    Args:
        folder: of Triton's cache.
        environ: the environment of this process.
    """
    wanted = {_TORCH_CACHE: os.path.join(folder, "torch"), _TORCH_THREADS: "1"}
    return {name: environ.get(name, value) for name, value in wanted.items()}


def folder_size(folder: str) -> int:
    """Bytes of the files in a folder and below; 0 where there is none."""
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(root, name)).st_size
    return size


def _hash(specs: Sequence[str]) -> str:
    """Of the files that define the subjects, and of the release of Triton."""
    from flashverify.subjects.source import source_of

    found = hashlib.blake2b(digest_size=6)
    with suppress(metadata.PackageNotFoundError):
        found.update(metadata.version("triton").encode())
    for spec in specs:
        found.update(spec.encode())
        with suppress(Exception):  # a subject without a file has its name alone
            where = source_of(spec)
            found.update(b"" if where is None else where[0].read_bytes())
    return found.hexdigest()


def _prune(base: Path) -> None:
    """Remove all folders but those used last."""
    folders = sorted((f for f in base.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for folder in folders[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)

"""Fetch a release from the package index and unpack its Python files; nothing of it is built, run or given a place in the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flashverify.errors import NoVerdictError
from flashverify.gallery.place import folder_of, wanted_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.gallery.release import Release

__all__ = ["install", "unpack"]

_KEPT = frozenset({".py", ".json", ".txt", ".yaml", ".yml"})
_LIMIT = 1200.0
"""Seconds that one download may take."""


def install(release: Release) -> Path:
    """The folder with the release's Python files, fetched where they are not there yet.

    Raises:
        NoVerdictError: the package index cannot be reached, or has no such version.
    """
    folder = folder_of(release)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
        place = Path(scratch) / "files"
        wanted = (f"{release.distribution}=={wanted_version(release)}", *release.needs)
        for n, requirement in enumerate(wanted):
            archive = _download(requirement, Path(scratch) / str(n), release, source=release.source and n == 0)
            unpack(archive, place)
        os.replace(place, folder)
    return folder


def _download(requirement: str, into: Path, release: Release, *, source: bool) -> Path:
    into.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--no-binary", ":all:"] if source else ["--only-binary", ":all:"]
    try:
        done = subprocess.run(
            (*command, "--dest", str(into), requirement),
            capture_output=True,
            text=True,
            env=os.environ | dict(release.settings),
            timeout=_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoVerdictError(
            f"{requirement} was not fetched in {_LIMIT:g} s; is the package index reachable?"
        ) from None
    archives = sorted(into.iterdir())
    if done.returncode or not archives:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        why = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with {done.returncode}"
        raise NoVerdictError(
            f"{requirement} was not fetched ({why}); the gallery needs a package index that pip reaches, or the release in "
            f"{folder_of(release)}"
        )
    return archives[0]


def unpack(archive: Path, place: Path) -> None:
    """Write the Python files of a wheel, or of the one folder of a source archive, below `place`; shared libraries are left out.

    Raises:
        NoVerdictError: the archive is damaged.
    """
    try:
        for name, data in _members(archive):
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    except (zipfile.BadZipFile, tarfile.TarError, OSError) as error:
        shutil.rmtree(place, ignore_errors=True)
        raise NoVerdictError(f"{archive.name} cannot be unpacked: {error}") from error


def _members(archive: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if not entry.is_dir() and _is_kept(path := PurePosixPath(entry.filename)):
                    yield path, wheel.read(entry)
        return
    with tarfile.open(archive) as source:
        for member in source:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if member.isfile() and _is_kept(path) and (file := source.extractfile(member)) is not None:
                yield path, file.read()


def _is_kept(path: PurePosixPath) -> bool:
    metadata = bool(path.parts) and path.parts[0].endswith(".dist-info")
    safe = not path.is_absolute() and ".." not in path.parts
    return safe and (metadata or path.suffix in _KEPT)

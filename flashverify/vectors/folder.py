"""A folder of vectors: one file a case and format, a manifest, and the reader in C++."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashverify.case.text import format_case
from flashverify.checks.answers import Rule
from flashverify.describe.fields import field_texts
from flashverify.errors import UsageError
from flashverify.vectors.contents import contents_of
from flashverify.vectors.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case
    from flashverify.subjects.interface import Subject

__all__ = ["MANIFEST", "READER", "SCHEMA", "require_new", "write_folder"]

SCHEMA = "flashverify.vectors/1"
MANIFEST, READER = "manifest.json", "flashverify_vectors.hpp"


def require_new(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        UsageError: it does, it is no folder, or nothing can be written beside it.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"FOLDER={str(folder)!r} is not accepted: it exists; a new or an empty folder")


def write_folder(folder: Path, subject: Subject, cases: Sequence[Case], formats: Sequence[str]) -> Path:
    """Write the vectors of `cases`, and return the path of the manifest. The folder appears when it is complete.

    Raises:
        UsageError: the folder holds something, or cannot be written.
    """
    require_new(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"FOLDER={str(folder)!r} is not accepted: {error.strerror}") from error
    try:
        vectors = [_write(part, number, subject, case, formats) for number, case in enumerate(cases)]
        manifest = {
            "schema": SCHEMA,
            "flashverify": metadata.version("flashverify"),
            "subject": subject.name,
            "contract": _changed(subject.contract),
            "rules": {rule.name.lower(): int(rule) for rule in Rule},
            "vectors": vectors,
        }
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        reader = resources.files("flashverify.vectors") / "reader" / READER
        (part / READER).write_bytes(reader.read_bytes())
        part.chmod(0o777 & ~_umask())
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            raise UsageError(f"FOLDER={str(folder)!r} is not accepted: {error.strerror}") from error
        raise
    return folder / MANIFEST


def _write(folder: Path, number: int, subject: Subject, case: Case, formats: Sequence[str]) -> dict[str, object]:
    """The files of one vector, and its entry in the manifest."""
    text, tensors = format_case(case), contents_of(subject, case)
    files = {}
    for kind in formats:
        path = folder / f"case-{number:04d}.{kind}"
        data = FORMATS[kind](text, tensors)
        path.write_bytes(data)
        files[kind] = {"path": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"case": text, "form": _changed(subject.form(case)), "files": files}


def _changed(declared: Any) -> dict[str, str]:
    """The fields that differ from their defaults, as Python text."""
    texts = field_texts(declared)
    return {f.name: texts[f.name] for f in dataclasses.fields(declared) if getattr(declared, f.name) != f.default}


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value

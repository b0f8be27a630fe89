"""Which kinds of cases earlier searches compiled, kept in a file beside their kernels: a search whose cache is warm draws from them at once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

__all__ = ["KnownKinds"]

_NAME = "flashverify-kinds.json"
_PACKAGE = Path(__file__).parents[2]
_LISTING = ("case", "subjects")
"""Parts of the package that say which kinds a subject has, and in which order."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The file.

    Attributes:
        listing: see `_listing`.
        kinds: numbers of kinds, by the spec of their subject.
    """

    listing: str
    kinds: dict[str, list[int]]


class KnownKinds:
    """The file of one folder of compiled kernels. It is a hint: what is missing, damaged or of another listing of kinds counts as empty.

    Args:
        folder: of the kernels; empty keeps nothing.
    """

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / _NAME if folder else None
        self._new: dict[str, set[int]] = {}

    def of(self, spec: str) -> tuple[int, ...]:
        """Kinds of a subject that some search compiled."""
        return tuple(sorted(self._read().get(spec, ())))

    def add(self, spec: str, kind: int) -> None:
        """A kind is compiled; `store` writes it down."""
        self._new.setdefault(spec, set()).add(kind)

    def store(self) -> None:
        """Add what is new to the file, in one step. A folder that cannot be written to keeps what it has."""
        if self._path is None or not self._new:
            return
        kinds = self._read()
        for spec, new in self._new.items():
            kinds[spec] = sorted(new.union(kinds.get(spec, ())))
        with contextlib.suppress(OSError):
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=_NAME)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_Stored(_listing(), kinds)))
            os.replace(name, self._path)
            self._new.clear()

    def _read(self) -> dict[str, list[int]]:
        if self._path is None:
            return {}
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError):
            return {}
        return found.kinds if found.listing == _listing() else {}


@functools.cache
def _listing() -> str:
    """A digest of the code by which kinds are listed: their numbers mean something else where it differs."""
    found = hashlib.blake2b(digest_size=8)
    for part in _LISTING:
        for path in sorted((_PACKAGE / part).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()

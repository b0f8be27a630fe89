"""What a run folder notes of its work: the batches that were handed out, and the lists of cases that are judged before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from flashverify.campaign.store.files import read_capped, set_aside
from flashverify.campaign.store.sealing import DamagedRecordError, decode
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LISTS", "PROGRESS", "Claims", "Lists", "read_claims", "read_lists"]

PROGRESS, LISTS = "progress.json", "lists.json"
_Note = TypeVar("_Note")


class Claims(msgspec.Struct, frozen=True):
    """The batches that were handed out.

    Attributes:
        batches: how many; their numbers are those below, of one shard of several its own among them.
        seconds: that the run took up to then.
        open: those of which something is left to judge; None in runs of versions that did not note it.
        waiting: cases that such batches drew and put off until their kernels are compiled, by the spec of their subject.
    """

    batches: int = 0
    seconds: float = 0.0
    open: tuple[int, ...] | None = None
    waiting: dict[str, tuple[str, ...]] = {}


class Lists(msgspec.Struct, frozen=True):
    """The lists of cases, by the text of their names."""

    lists: dict[str, tuple[str, ...]] = {}


def read_claims(folder: Path, problems: list[str]) -> Claims | None:
    """The batches handed out so far; None where the note is missing or damaged. A damaged one is put aside and told in `problems`."""
    return _read(folder, PROGRESS, Claims, problems)


def read_lists(folder: Path, problems: list[str]) -> dict[str, tuple[str, ...]]:
    """The lists of cases, as far as they are known; likewise."""
    noted = _read(folder, LISTS, Lists, problems)
    return dict(noted.lists) if noted is not None else {}


def _read(folder: Path, name: str, kind: type[_Note], problems: list[str]) -> _Note | None:
    path = folder / name
    if not path.exists():
        return None
    try:
        return decode(read_capped(path, within=folder), kind)
    except (StoreError, DamagedRecordError) as error:
        aside = set_aside(path)
        problems.append(f"{path} is damaged ({error})" + (f", kept as {aside.name}" if aside else ""))
        return None

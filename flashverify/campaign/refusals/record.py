"""What became of cases outside a declaration: the record of a run folder, and the lines between the processes. Imports no torch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec

from flashverify.campaign.store.files import read_capped, write_atomic
from flashverify.campaign.store.sealing import DamagedRecordError, decode, pretty
from flashverify.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FILE",
    "OUTSIDE_WRONG",
    "Asked",
    "Begun",
    "Ended",
    "Outcome",
    "Outside",
    "Refusals",
    "read_refusals",
    "write_refusals",
]

FILE = "refusals.json"
OUTSIDE_WRONG = 4
"""Exit code of a run that is clean inside the declaration, and outside it silently wrong, dead or hanging."""

Outcome = Literal["refused", "right", "wrong", "died", "hung", "not judged"]


class Asked(msgspec.Struct, frozen=True):
    """What a process is asked: cases of `subject` outside its declaration, `each` for every property, without those in `done`."""

    subject: str
    device: str
    seed: int
    each: int
    numerics: str = "ieee"
    done: tuple[str, ...] = ()


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The case that is run now, and the property by which it leaves the declaration, in words."""

    case: str
    property: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    """What became of it."""

    outcome: Outcome
    message: str = ""


class Outside(msgspec.Struct, frozen=True):
    """A case outside the declaration and what became of it.

    Attributes:
        subject: as `--subject` takes it.
        case: its text.
        property: the only one that is not declared, in words.
        outcome: the subject raised, was right, was silently wrong, ended its process or did not end; or nothing can be said.
        message: the exception, or what is wrong.
    """

    subject: str
    case: str
    property: str
    outcome: Outcome
    message: str = ""


class Refusals(msgspec.Struct, frozen=True):
    """All of a run; `unfinished` are subjects for which there was no time for every property."""

    cases: tuple[Outside, ...] = ()
    unfinished: tuple[str, ...] = ()

    @property
    def counts(self) -> Counter[Outcome]:
        """Cases by outcome."""
        return Counter(each.outcome for each in self.cases)

    @property
    def bad(self) -> tuple[Outside, ...]:
        """Those that were neither refused nor right, the silent ones first."""
        order: tuple[Outcome, ...] = ("wrong", "died", "hung")
        return tuple(each for outcome in order for each in self.cases if each.outcome == outcome)


def write_refusals(folder: Path, record: Refusals) -> None:
    """Stores it in a run folder."""
    write_atomic(folder / FILE, pretty(record))


def read_refusals(folder: Path) -> Refusals | None:
    """What is stored in a run folder; None where nothing was asked, or it is damaged."""
    try:
        return decode(read_capped(folder / FILE, within=folder), Refusals)
    except (StoreError, DamagedRecordError):
        return None

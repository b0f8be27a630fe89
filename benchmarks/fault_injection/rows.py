"""Tries of one kind of fault, and what went wrong in them."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .faults import DISK, SUPERVISOR, WORKER, Fault
from .model import COLUMNS, Campaign, Stored, after_the_end, after_the_fault, announced_before, stored
from .processes import Ended, command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Command = Callable[[list[str], Path, Any], Ended]

__all__ = ["Row", "every_step", "folder", "kinds_of", "undisturbed"]

_FAST = Path("/dev/shm")


@dataclass
class Row:
    """One row of the table.

    Attributes:
        counts: tries, commands, and tries with something wrong by column.
        wrong: in words, at most one line a problem.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str, problems: Iterable[tuple[str, str]]) -> None:
        """One try is over."""
        found = list(problems)
        self.counts["tries"] += 1
        self.counts.update({column for column, _ in found})
        self.wrong += [f"{self.name} | {what} | {column}: {' '.join(text.split())}" for column, text in found]

    @property
    def text(self) -> str:
        """As a line of the table."""
        return f"| {self.name} | " + " | ".join(str(self.counts[name]) for name in ("tries", *COLUMNS)) + " |"


def folder() -> tempfile.TemporaryDirectory[str]:
    """Of a try, in memory where that is possible: a sync of a real disk takes long."""
    return tempfile.TemporaryDirectory(prefix="faults-", dir=_FAST if _FAST.is_dir() else None)


def undisturbed(campaign: Campaign, run_command: Command | None = None) -> tuple[Stored, Ended]:
    """The campaign without a fault."""
    with folder() as base:
        ended = (run_command or _plain)(campaign.words, Path(base), None)
        found = stored(ended, Path(base) / "run")
        problems = list(after_the_end(SUPERVISOR, ended, set(), found, found, Path(base) / "run"))
        if problems or found.code not in (0, 1):
            raise RuntimeError(f"{campaign.name} is wrong without a fault: {problems} {ended}")
        return found, ended


def _plain(words: list[str], base: Path, _: None) -> Ended:
    return command(words, base)


def kinds_of(role: str) -> tuple[str, ...]:
    """Kinds of faults of a process; a worker writes its note alone, which a loss of power may take."""
    left_out = (
        "kill-after" if role == SUPERVISOR else "power-"
    )  # behind one step of the supervisor is in front of its next one
    return tuple(kind for kind in DISK if not kind.startswith(left_out))


def every_step(campaign: Campaign, role: str, kind: str, *, stride: int = 1, offset: int = 0) -> Row:
    """A fault at each step of the campaign, one a try; then the same command again until it is over."""
    right, plain = undisturbed(campaign)
    row = Row(f"{campaign.name} | {role} | {kind}")
    number, silent = offset, 0
    most = plain.steps[role == WORKER]
    while number < most + 5 and silent < 40:
        ended = _try(row, campaign, Fault(role, kind, number, number), right)
        silent = 0 if ended.fired else silent + 1
        number += stride
    return row


def _try(row: Row, campaign: Campaign, fault: Fault, right: Stored) -> Ended:
    with folder() as base:
        run = Path(base) / "run"
        ended = command(campaign.words, Path(base), fault=fault)
        if not ended.fired:
            return ended
        problems = list(after_the_fault(fault.kind, fault.role, ended, stored(ended, run), right))
        last, commands = ended, [ended]
        if ended.code not in (0, 1):
            commands.append(last := command(campaign.words, Path(base)))
        problems += after_the_end(fault.role, last, announced_before(*commands), stored(last, run), right, run)
        row.add(next(line for line in ended.told if line.startswith("fault ")), problems)
        return ended

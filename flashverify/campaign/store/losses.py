"""losses.json: the workers that a run lost, and the GPUs that it set aside, with what each said at last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.store.files import read_capped, write_atomic
from flashverify.campaign.store.sealing import DamagedRecordError, decode, seal
from flashverify.errors import StoreError
from flashverify.judge.wording import duration_text

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LOSSES", "Losses", "Lost", "loss_sentence", "read_losses", "write_losses"]

LOSSES = "losses.json"
_KEPT = 100
"""Losses that are kept, the latest ones."""
_PRINTED = 2000
"""Characters of what a process printed, its last ones; of a reason and of a case the first."""


class Lost(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker that died or hung, or a GPU that was set aside.

    Attributes:
        seconds: of the run.
        who: `worker 3` or `GPU 1`.
        reason: in words.
        case: that it judged, empty where none was.
        printed: what the process wrote last.
    """

    seconds: float
    who: str
    reason: str
    case: str = ""
    printed: str = ""


class Losses(msgspec.Struct, frozen=True):
    """All of a run: `count` of them, of which `last` are the latest, in the order of time."""

    count: int = 0
    last: tuple[Lost, ...] = ()

    def also(self, lost: Lost) -> Losses:
        """With one more; its texts are cut, and what is no UTF-8 is replaced."""
        lost = msgspec.structs.replace(
            lost,
            reason=_stored(lost.reason[:_PRINTED]),
            case=_stored(lost.case[:_PRINTED]),
            printed=_stored(lost.printed[-_PRINTED:]),
        )
        return Losses(self.count + 1, (*self.last, lost)[-_KEPT:])


def _stored(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def loss_sentence(lost: Lost) -> str:
    """One loss in words."""
    case = f", at {lost.case}" if lost.case else ""
    return f"{lost.who} after {duration_text(lost.seconds)}: {' '.join(lost.reason.split())}{case}"


def read_losses(folder: Path) -> Losses:
    """The losses of a run; none where nothing is noted, or where the note is damaged: no verdict depends on it."""
    try:
        return decode(read_capped(folder / LOSSES, within=folder), Losses)
    except (StoreError, DamagedRecordError):
        return Losses()


def write_losses(folder: Path, losses: Losses) -> None:
    """Write losses.json.

    Raises:
        StoreError: the disk refuses.
    """
    write_atomic(folder / LOSSES, seal(msgspec.json.encode(losses)), durable=False)

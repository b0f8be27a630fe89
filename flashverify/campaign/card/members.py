"""The failures that have the cause of a finding, as one line and as a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.checks.registry import failure_title
from flashverify.formats import DTYPES
from flashverify.judge.wording import plural
from flashverify.outputs import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.judge.record import FindingRecord, Folded

__all__ = ["Member", "Members", "members_of"]


@dataclass(frozen=True, slots=True)
class Member:
    """One of them: its failure in words, and what is stored."""

    failure: str
    record: Folded


@dataclass(frozen=True, slots=True)
class Members:
    """All of them, and `summary`, which outputs, dtypes and checks they are about."""

    summary: str
    members: tuple[Member, ...]


def members_of(record: FindingRecord) -> Members | None:
    """The failures that are folded into a finding; None where there are none."""
    keys = [folded.key for folded in record.folded]
    if not keys:
        return None
    about = ", ".join(_ordered((key.output for key in keys if key.output), OUTPUTS))
    dtypes = ", ".join(_ordered((key.dtype for key in keys), DTYPES))
    checks = sorted({key.check for key in keys})
    by = f", by the checks {', '.join(checks)}" if checks != [record.key.check] else ""
    summary = f"{about or 'failures'} in {dtypes}{by}: {plural(len(keys), 'failure')} of the same cause"
    return Members(
        summary, tuple(Member(failure_title(f.key.check, f.key.error, f.key.output), f) for f in record.folded)
    )


def _ordered(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Each name once, the known ones in their order."""
    return sorted(set(names), key=lambda name: (order.index(name) if name in order else len(order), name))

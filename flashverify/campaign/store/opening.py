"""Opening a run folder to write: nothing that stands in it leads elsewhere, and nothing is left of a process that was killed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from flashverify.campaign.store.files import remove_unfinished, set_aside, strange
from flashverify.campaign.store.losses import LOSSES
from flashverify.campaign.store.notes import LISTS, PROGRESS
from flashverify.campaign.store.reader import FINDING, FINDINGS, RUN, SUMMARY
from flashverify.campaign.store.results import RESULTS
from flashverify.campaign.store.segments import remove_unfinished_segments

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CASE", "INFLIGHT", "SCRIPT", "clear_the_way", "forget_unfinished"]

CASE, SCRIPT, INFLIGHT = "case.json", "repro.py", "inflight"
_OWN = (RUN, RESULTS, SUMMARY, PROGRESS, LISTS, LOSSES, "live.json", "stats.json")
"""Files that only the process with the lock writes."""


def clear_the_way(path: Path) -> list[str]:
    """Put aside links, FIFOs and the like under names that are written to: they may lead anywhere. What was found, in words.

    Raises:
        OSError: one of them cannot be put aside, or is the header or the lock.
    """
    problems = []
    files, folders = (".lock", RUN, RESULTS, SUMMARY, PROGRESS, LISTS, LOSSES), (FINDINGS, INFLIGHT)
    found = [path / name for name in (*files, *folders)]
    with contextlib.suppress(OSError):
        found += [path / FINDINGS / name for name in sorted(os.listdir(path / FINDINGS))]
    for each in found:
        folder = each.name in folders or each.parent != path
        why = strange(each, path, folder=folder)
        if not why or (each.parent != path and not each.is_symlink()):
            continue
        if each.name in (".lock", RUN):
            raise OSError(why)
        aside = set_aside(each)
        problems.append(f"{why}, " + (f"kept as {aside.name}" if aside else "and could not be set aside"))
        if aside is None:
            raise OSError(why)
    return problems


def forget_unfinished(path: Path) -> None:
    """Remove the temporary files of a process that was killed; the lock is held.

    Raises:
        OSError: the folder of the findings cannot be read.
    """
    remove_unfinished(path, _OWN)
    remove_unfinished_segments(path)
    for folder in (path / FINDINGS).iterdir():
        if not strange(folder, path, folder=True):
            remove_unfinished(folder, (CASE, SCRIPT, FINDING))

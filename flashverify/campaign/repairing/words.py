"""The answer of `flashverify repair` in a terminal: the first repair as a patch, what else was found, and on how many cases it was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.card.repair_words import diff_lines, repair_effect, repair_note, repair_place
from flashverify.campaign.repairing.patch import patch_text, placed
from flashverify.judge.wording import evidence_text, plural, visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flashverify.campaign.repairing.record import Answer
    from flashverify.judge.record import Repair

__all__ = ["answer_code", "answer_lines", "patch_of"]


def answer_code(found: Answer) -> int:
    """0 there is a repair, 1 there is none, 3 the subject cannot run."""
    return 0 if found.repairs else 1 if found.able else 3


def answer_lines(found: Answer, case: str, root: Path) -> list[str]:
    """The answer, line by line; `git apply` takes the first repair of it alone.

    Args:
        found: the answer.
        case: that fails.
        root: folder from which files are named.
    """
    took = f", {found.seconds:.0f} s" if found.seconds else ""
    about = visible(f"{found.subject} ({evidence_text(found.evidence)}{took})")
    if not found.repairs:
        return [f"no repair: {about}", visible(case), *(f"  {visible(line)}" for line in found.why.splitlines())]
    lines = [f"{plural(len(found.repairs), 'repair')}: {about}", visible(case), f"({repair_note(found.repairs)})"]
    for number, repair in enumerate(found.repairs):
        first = "or, by itself: " if number else ""
        lines += ["", visible(f"{first}{repair_place(repair)} {repair_effect(repair)}:")]
        lines += _patched(repair, root) if not number else _shown(repair)
    return lines


def _patched(repair: Repair, root: Path) -> Iterator[str]:
    patch = patch_of(repair, root)
    if not patch:
        yield from _shown(repair)
    # What stands in the file goes out as it is, but for what a terminal would obey.
    yield from ("".join(c if c == "\t" else visible(c) for c in line) for line in patch.splitlines())


def _shown(repair: Repair) -> Iterator[str]:
    yield from (f"  {line}" for line in diff_lines(repair))


def patch_of(repair: Repair, root: Path) -> str:
    """A patch that `git apply` takes in the folder `root`; empty where no file below it has those lines."""
    found = placed(repair, root)
    return "" if found is None else patch_text(found)

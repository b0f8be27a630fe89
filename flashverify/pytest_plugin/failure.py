"""What a failing test prints: the card of each finding, and what reproduces it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from flashverify.campaign.card.content import card_of
from flashverify.campaign.card.lines import card_lines
from flashverify.judge.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.judge.verdict import CaseResult
    from flashverify.pytest_plugin.explaining import Explained
    from flashverify.pytest_plugin.groups import Group

__all__ = ["failure_text"]

_NARROWEST = 60


def failure_text(
    findings: Sequence[Explained],
    exceeded: Sequence[str],
    failing: Sequence[CaseResult],
    cases: int,
    group: Group,
    seed: int,
) -> str:
    """What fails in a test.

    Args:
        findings: that may not stand: with their cards where this test explained them, otherwise with a reference to the one that did.
        exceeded: ratios above their ceilings, in words.
        failing: results with failures.
        cases: of the test.
        group: of the test.
        seed: of the session.
    """
    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    unseen = [found for found in findings if found.here and not found.record.confirmation.repeats][1:]
    shown = [found for found in findings if found not in unseen]
    lines: list[str] = []
    for number, found in enumerate(shown, 1):
        card = card_of(found.record)
        if found.here:
            lines += [*card_lines(card, number=number * (len(shown) > 1), width=width), ""]
        else:
            title = f"{number}. {card.title}" if len(shown) > 1 else card.title
            lines += [visible(title), f"  {visible(found.message)}", f"  the card stands at {found.test}"]
            lines += [f"  {visible(found.replay)}", ""]
    if unseen:
        lines += ["also failing, which may have the same cause:", *map(_line, unseen), ""]
    lines += [line for text in exceeded for line in (*text.splitlines(), "")]
    drawn = f", drawn from seed {seed}" if group.drawn is not None else ""
    share = f"{len(failing)} of {plural(cases, 'case')}" if cases > 1 else "the case"
    return "\n".join([*lines, f"{share} of this test failed{drawn}"] if findings else lines)


def _line(found: Explained) -> str:
    """A failure that nobody explained, beside one whose card is shown."""
    key = found.record.key
    about = " ".join(word for word in (key.output, key.dtype, key.check) if word)
    return visible(f"  {about}: {found.message}")

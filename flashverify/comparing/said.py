"""What a comparison says, before it is plain text or Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.judge.wording import plural, ratio_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.comparing.change import Changed, Row
    from flashverify.comparing.comparison import Comparison

__all__ = ["TITLES", "changed_lists", "numbers", "scope", "shown_rows", "single_lists"]

TITLES = {"do not merge": "Do not merge", "look": "Look before merging", "may merge": "May merge"}


def scope(comparison: Comparison) -> str:
    """How many cases the two sides have in common."""
    alone = [
        f"{len(cases):,} only {when}"
        for cases, when in ((comparison.only_before, "before"), (comparison.only_after, "after"))
        if cases
    ]
    rest = f" ({', '.join(alone)})" if alone else ""
    return f"{plural(comparison.common, 'common case')}, {comparison.judged:,} of them judged in both runs{rest}."


def shown_rows(comparison: Comparison) -> tuple[Row, ...]:
    """The rows of the table of cases: all of them where there is none of elements, otherwise those that it does not hold."""
    if comparison.elements is None:
        return comparison.rows
    return tuple(row for row in comparison.rows if row.key.mode != "end-to-end")


def changed_lists(comparison: Comparison) -> Iterator[tuple[str, tuple[Changed, ...]]]:
    """Cases that newly fail and newly pass, with their title."""
    for title, changed in (("Newly failing", comparison.newly_failing), ("Newly passing", comparison.newly_passing)):
        if changed:
            yield title, changed


def single_lists(comparison: Comparison) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
    """Cases of one side alone, with their title."""
    for title, cases in (
        ("Only in the earlier run", comparison.only_before),
        ("Only in the later run", comparison.only_after),
    ):
        if cases:
            yield title, cases


def numbers(pair: tuple[float, float]) -> tuple[str, str, str]:
    """Before, after and the relative change."""
    before, after = pair
    return ratio_text(before), ratio_text(after), _change(before, after)


def _change(before: float, after: float) -> str:
    if before == after or (math.isnan(before) and math.isnan(after)):
        return "="
    if not math.isfinite(before) or not math.isfinite(after) or before <= 0:
        return "new" if before == 0 else "?"
    percent = 100 * (after / before - 1)
    return f"{percent:+.1f} %" if abs(percent) < 1000 else f"x {after / before:.3g}"

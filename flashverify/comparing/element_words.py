"""What became of the elements, in words: reasons to look, and the one sentence of the answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.judge.wording import plural, ratio_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.comparing.comparison import Comparison
    from flashverify.comparing.elements import ElementRow, Elements
    from flashverify.comparing.thresholds import Thresholds

__all__ = ["element_doubts", "growth_text", "sentence", "share_text", "ulp_text"]


def element_doubts(elements: Elements, limits: Thresholds) -> list[str]:
    """Reasons to look that the elements give."""
    found = [text for row in elements.rows for text in _doubts(row, limits)]
    if elements.raised:
        case, text = next(iter(elements.raised.items()))
        found.append(f"{plural(len(elements.raised), 'case')} could not be run once more: {text} ({case})")
    return found


def _doubts(row: ElementRow, limits: Thresholds) -> Iterator[str]:
    where = f"of {row.output} ({row.dtype})"
    matters = row.after.worst >= limits.negligible
    if matters and row.growth.significant and (row.growth.mean or 0) > math.log2(limits.error_growth):
        yield f"the errors {where} grew: {growth_text(row)} on average over {plural(row.cases, 'case')}"
    if row.bias.significant and abs(row.bias.mean or 0) > limits.bias_shift:
        yield f"the bias {where} moved: {row.bias.text()} of the bound"
    if row.drift.significant and abs(row.drift.mean or 0) > limits.drift_shift:
        direction = "toward zero" if (row.drift.mean or 0) < 0 else "away from zero"
        yield f"the errors {where} drift {direction}: {row.drift.text()} of the bound"
    if (row.width.mean or 0) > math.log2(limits.width_growth):
        yield f"the bounds {where} are {2 ** (row.width.mean or 0):.3g} times as wide: the later form is looser"
    if row.after.nonfinite > row.before.nonfinite:
        yield f"elements {where} that are NaN or infinite: {row.before.nonfinite:,} before, {row.after.nonfinite:,} after"


def growth_text(row: ElementRow) -> str:
    """By which factor the errors of a row grew on average; `=` where no element changed."""
    if not row.changed:
        return "="
    if row.growth.mean is None:
        return "–"
    mark = " !" if row.growth.significant else ""
    return f"x {2**row.growth.mean:.3g}{mark}"


def share_text(part: int, whole: int) -> str:
    """A share in percent."""
    if not part:
        return "none"
    percent = 100 * part / max(whole, 1)
    return f"{percent:.3g} %" if percent >= 0.01 else f"{part:,}"


def ulp_text(row: ElementRow) -> str:
    """The largest change, in ulp."""
    return "–" if not row.changed else "not finite" if math.isinf(row.ulp) else f"{row.ulp:,.0f}"


def sentence(comparison: Comparison) -> str:
    """The answer in one sentence."""
    elements = comparison.elements
    if comparison.decision == "do not merge":
        causes = [card.diagnosis for card in comparison.findings if card.diagnosis]
        said = f" {causes[0].split('. ')[0].rstrip('.')}." if causes else ""
        return f"Do not merge: {comparison.reasons[0]}.{said}"
    if comparison.decision == "look":
        more = len(comparison.reasons) - 1
        return f"Look before merging: {comparison.reasons[0]}" + (
            f", and {plural(more, 'more reason')}." if more else "."
        )
    if comparison.newly_passing:
        fixed = len(comparison.newly_passing)
        return (
            f"May merge: no case newly fails, and {plural(fixed, 'case that failed passes', 'cases that failed pass')}."
        )
    if elements is None:
        return "May merge: no case newly fails, and no ratio, status, coverage or form changed by more than the thresholds."
    if elements.unchanged:
        return f"May merge: no change. Every element of {plural(elements.measured, 'case')} has the same bits."
    moved = [row for row in elements.rows if row.changed]
    worst = max(moved, key=lambda row: abs(row.growth.mean or 0.0)) if moved else None
    if worst is None:
        return "May merge: no case newly fails."
    size = f"at most {growth_text(worst).strip(' !')} in the size of the errors ({worst.output}, {worst.dtype})"
    return f"May merge: no case newly fails; the elements that changed moved within rounding, {size}, worst ratio {ratio_text(max(row.after.worst for row in moved))}."

"""Which rows have no weights at all although they see keys, as rows that no program computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.diagnosis.conditions import Condition, in_words
from flashverify.diagnosis.places import PLACES, region_of
from flashverify.diagnosis.readings.weights.models import GONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.lse_in_effect import Row

__all__ = ["which_are_gone"]


def which_are_gone(rows: list[Row]) -> str:
    """The place at which every row without weights lies, and no other one, in words that begin with `only`; empty where none is known.

    Args:
        rows: cases under a model that is right in all other rows.
    """
    gone = [(row.shift <= GONE) & ~row.effect.open_rows for row in rows]
    asked = [~row.effect.open_rows for row in rows]
    for place in (*_from_a_number(rows, gone), *PLACES):
        parts = False
        for row, where, some in zip(rows, gone, asked, strict=True):
            region = region_of(row.effect.scene, (place,))
            found = region.pairs.expand(row.effect.weights.shape).any(-1)
            if region.channels is not None or bool(((found != where) & some).any()):
                break
            parts |= bool((some & ~where).any()) and bool(where.any())
        else:
            if parts:
                return in_words((place,))
    return ""


def _from_a_number(rows: list[Row], gone: list[Tensor]) -> Iterator[Condition]:
    """Sequences, query heads and rows behind a number that is the same on all cases, as of a grid with a limit."""
    least: dict[str, int] = {}
    for row, where in zip(rows, gone, strict=True):
        b, h, i = where.nonzero().T
        if not len(b):
            continue
        at = row.effect.scene.at
        own = b.clamp(max=at.row.shape[0] - 1)
        packed = row.effect.scene.case.mask.packed is not None
        for name, number in (
            ("sequence", at.row_sequence[own, i] if packed else b),
            ("head", h),
            ("row", at.row[own, i]),
        ):
            least[name] = min(least.get(name, int(number.min())), int(number.min()))
    yield from (Condition(name, ">=", number) for name, number in least.items() if number)

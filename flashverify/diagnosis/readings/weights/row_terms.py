"""A term of the logits that counts otherwise in whole rows, those of some heads, sequences or tiles, and as declared in the others.

A factor of a row cancels in its softmax, so that in a row in which every key has a logit of its own no pair is known to be right: whole rows
are compared.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.readings.masks.ends import visible_of
from flashverify.diagnosis.readings.masks.extent import Extent
from flashverify.diagnosis.readings.masks.extents import EVERY
from flashverify.diagnosis.readings.masks.rules import Rule, places_of
from flashverify.diagnosis.readings.weights.models import tolerance_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect
    from flashverify.diagnosis.readings.weights.models import Deviation
    from flashverify.diagnosis.readings.weights.term import Term

__all__ = ["centred", "terms_in_rows"]

_PLACES = 25
_CLEAR = 4.0
"""By how many tolerances a term is to show in a row."""


def centred(x: Tensor, read: Tensor) -> Tensor:
    """`x` minus its mean over the pairs of its row that were read; 0 elsewhere."""
    kept = torch.where(read, x, 0.0)
    count = read.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(read, x - kept.sum(-1, keepdim=True) / count, 0.0)


def terms_in_rows(
    effect: Effect, deviation: Deviation, terms: list[tuple[Term, Tensor]]
) -> Iterator[tuple[Term, float, Rule]]:
    """Terms, how many times more than declared they count in every wrong row, and where these rows lie.

    Args:
        effect: in which some rows are wrong and others are right.
        deviation: of it.
        terms: with their values.
    """
    read = deviation.read & torch.isfinite(deviation.off)
    rows = deviation.wrong.any(-1, keepdim=True)
    if not bool(rows.any()) or bool((deviation.read != read).any()):
        return
    off, tolerance = centred(deviation.off, read), _CLEAR * tolerance_of(effect)
    for term, value in terms:
        t = centred(value, read)
        mine = t * rows
        size = float((mine * mine).sum())
        if size < 1e-12:
            continue
        more = float((off * mine).sum()) / size
        if not bool((((off - more * t).abs() <= tolerance + 1e-4 * t.abs()) | ~rows).all()):
            continue
        told = (((more * t).abs() > tolerance).any(-1, keepdim=True) | rows).expand_as(rows)
        if bool((told == rows).all()):  # no right row says where it does not
            continue
        everywhere = rows.expand_as(deviation.wrong)
        for place, pairs in islice(places_of(effect.scene, everywhere), _PLACES):
            inside = pairs.expand_as(deviation.wrong)
            if bool((inside.any(-1, keepdim=True) == inside.all(-1, keepdim=True)).all()) and not bool(
                (inside & told & ~rows).any()
            ):
                yield term, more, Rule(Extent(EVERY, visible_of), (place,))

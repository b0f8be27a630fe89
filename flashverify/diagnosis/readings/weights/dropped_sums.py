"""Row sums under dropout: of the kept keys, and times what belongs to the draws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flashverify.diagnosis.readings.weights.models import kept_factor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.readings.weights.effect import Effect

    Mass = Callable[[Effect, Tensor], Tensor]

__all__ = ["dropped_sums"]


def dropped_sums(effect: Effect, sum_of: Mass, own: Mass) -> Iterator[tuple[str, Mass]]:
    """As `masses` gives them; none without dropout.

    Args:
        effect: a case.
        sum_of: the logarithm of the row sum that belongs to logits.
        own: the same of rows that may have no key left.
    """
    if not effect.scene.case.dropout:
        return
    yield "is that of the kept keys", lambda e, z: own(e, z.masked_fill(kept_factor(e).expand_as(z) == 0, -math.inf))
    yield "is multiplied by 1 - p", lambda e, z: sum_of(e, z) + math.log1p(-e.scene.case.dropout)
    yield "is divided by 1 - p", lambda e, z: sum_of(e, z) - math.log1p(-e.scene.case.dropout)
    yield (
        "is multiplied by p / (1 - p), as if a pair were kept with the probability p",
        lambda e, z: sum_of(e, z) + math.log(e.scene.case.dropout) - math.log1p(-e.scene.case.dropout),
    )
    yield "is that of the kept keys, each over 1 - p", lambda e, z: own(e, z + kept_factor(e).log().expand_as(z))

"""Which condition of a subject's `also` throws how many draws away."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING

from flashverify.case.space.strategies import cases, drawn_dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

    from flashverify.case.case import Case
    from flashverify.case.space.profiles import Profile
    from flashverify.case.supports import Supports

__all__ = ["Rejection", "raw_cases", "rejections"]

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Rejection:
    """One condition.

    Attributes:
        reason: the first one that it gave; the others differ from it in numbers alone.
        share: of all draws.
    """

    reason: str
    share: float

    def __str__(self) -> str:
        return f"{self.share:.0%} {self.reason}"


def raw_cases(supports: Supports, profile: Profile) -> SearchStrategy[Case]:
    """Cases inside everything that the subject declares but `also`."""
    return cases(dataclasses.replace(supports, also=None, dtypes=drawn_dtypes(supports, profile)), profile=profile)


def rejections(supports: Supports, drawn: Sequence[Case]) -> list[Rejection]:
    """The conditions by which `also` refuses some of the draws, those first that refuse most.

    Args:
        supports: what the subject declares.
        drawn: of `raw_cases`.
    """
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for case in drawn:
        reason = supports.refused_by_also(case)
        if reason is not None:
            kind = _NUMBER.sub("N", reason)
            counts[kind] += 1
            first.setdefault(kind, reason)
    return [Rejection(first[kind], count / len(drawn)) for kind, count in counts.most_common()]

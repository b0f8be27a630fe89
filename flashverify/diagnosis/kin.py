"""The other names that one mistake gets: cases that have another part of the mask, or another modifier, show it under these."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from flashverify.diagnosis.families import canonical, family_of

if TYPE_CHECKING:
    from flashverify.diagnosis.claims import Claim
    from flashverify.diagnosis.hypothesis import Semantics

__all__ = ["kin_of", "one_of_a_family"]


@cache
def kin_of(name: str) -> tuple[Semantics, ...]:
    """The semantics that stand in one family with the one of that name, without itself."""
    from flashverify.diagnosis.catalogue import SEMANTICS  # hypotheses of readings import claims, which ask for kin

    others = set(family_of(name)) - {name}
    return tuple(semantics for semantics in SEMANTICS if semantics.name in others)


def one_of_a_family(claims: list[Claim]) -> list[Claim]:
    """Of claims that explain the same cases one for each mistake, under its usual name."""
    found: list[Claim] = []
    for claim in claims:
        name = claim.semantics.name
        place = next((n for n, other in enumerate(found) if canonical(other.semantics.name, name)), None)
        if place is None:
            found.append(claim)
        elif canonical(found[place].semantics.name, name) == name:
            found[place] = claim
    return found

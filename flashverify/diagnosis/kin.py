"""The other names that one mistake gets: cases that have another part of the mask, or another modifier, show it under these."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from flashverify.diagnosis.families import family_of

if TYPE_CHECKING:
    from flashverify.diagnosis.hypothesis import Semantics

__all__ = ["kin_of"]


@cache
def kin_of(name: str) -> tuple[Semantics, ...]:
    """The semantics that stand in one family with the one of that name, without itself."""
    from flashverify.diagnosis.catalogue import SEMANTICS  # hypotheses of readings import claims, which ask for kin

    others = set(family_of(name)) - {name}
    return tuple(semantics for semantics in SEMANTICS if semantics.name in others)

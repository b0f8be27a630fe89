"""Which of several diagnoses name one defect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flashverify.campaign.causes.symptoms import TOLD_BY_VALUES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.judge.record import Diagnosis, FindingRecord
    from flashverify.judge.verdict import Key

__all__ = ["OF_VALUES", "agreed", "alike", "names"]

OF_VALUES = ("counting", "relations", "config")
"""Checks that ask about values too, by way of other problems."""


def alike(key: Key, found: Diagnosis | None, known: Iterable[FindingRecord]) -> FindingRecord | None:
    """The first of the `known` findings whose diagnosis names the same defect as `found`, the diagnosis of the finding `key`."""
    if found is None or not found.name or key.check not in (*TOLD_BY_VALUES, *OF_VALUES):
        return None
    return next((r for r in known if r.key != key and r.diagnosis is not None and _one(r.diagnosis, found)), None)


def agreed(first: Diagnosis, second: Diagnosis) -> Diagnosis:
    """Of two diagnoses of one defect the one with which fewer semantics are consistent, at the place of the first."""
    if len(second.also) >= len(first.also):
        return first
    return msgspec.structs.replace(second, place=first.place)


def names(found: Iterable[FindingRecord]) -> dict[Key, Diagnosis]:
    """The diagnoses that have a name, by finding."""
    return {r.key: r.diagnosis for r in found if r.diagnosis is not None and r.diagnosis.name}


def _one(a: Diagnosis, b: Diagnosis) -> bool:
    """Whether some semantics is consistent with the cases of both, under the same conditions."""
    return a.conditions == b.conditions and bool({a.name, *a.also} & {b.name, *b.also} - {""})

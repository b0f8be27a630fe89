"""What a minimal case has beyond the plainest one: a defect that shows there needs it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from flashverify.case.case import Storage
from flashverify.case.modifiers.logits import modifiers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["needs"]


def needs(minimal: Case) -> frozenset[str]:
    """Parts of the mask, modifiers, several sequences, groups of heads, launch parameters and properties of the storage, by name.

    Sizes, values, dtypes and a backward are no part of it: nearly every defect needs some.
    """
    return frozenset(_needs(minimal))


def _needs(case: Case) -> Iterator[str]:
    yield from (part.name for part, _ in case.mask.given())
    yield from (modifier.name for modifier in modifiers_of(case))
    yield from (name for name, _ in case.launch)
    plain = Storage()
    yield from (f.name for f in fields(plain) if getattr(case.storage, f.name) != getattr(plain, f.name))
    if case.batch > 1:
        yield "several sequences"
    if case.heads_q > case.heads_kv:
        yield "groups of heads"

"""Cases that differ in the numbers of their mask: one number tells no formula from another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.diagnosis.related_cases import grown
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flashverify.case.case import Case
    from flashverify.diagnosis.readings.masks.bounds import Bound
    from flashverify.subjects.interface import Subject

__all__ = ["number_cases"]

_SIZES = ((18, 34), (5, 67), (34, 21), (11, 50), (24, 24))
"""Rows and keys that are added."""
_SIDES = ((3, 9), (12, 2), (7, 20), (25, 11), (10, 5))
_SHARES = (0.3, 0.6, 0.45, 0.8, 0.2)
"""Of the keys of a sequence, how many its prefix or its length has; each sequence a little less than the one before."""


def number_cases(subject: Subject, case: Case, bounds: Sequence[Bound]) -> Iterator[Case]:
    """Cases like `case` that the subject accepts, in which some numbers of the mask are others and large enough to be told apart."""
    names = {each.part for each in bounds}
    for number, more in enumerate(_SIZES):
        found = grown(case, *more, regime="normal", seed=270 + number)
        if found is None:
            continue
        mask, changed = found.mask, _changed(found, names, number)
        try:
            other = replace(found, mask=replace(mask, **changed))
        except (UsageError, TypeError):
            continue
        if subject.supports.refusal(other) is None:
            yield other


def _changed(case: Case, names: set[str], number: int) -> dict[str, Any]:
    mask, changed = case.mask, dict[str, Any]()
    if names & {"left", "right"} and mask.window is not None:
        sides = zip(mask.window, _SIDES[number], strict=True)
        changed["window"] = tuple(None if side is None else given for side, given in sides)
    share = _SHARES[number]
    if "prefix" in names and mask.prefix_lengths is not None:
        lengths = [case.seq_k] * len(mask.prefix_lengths)
        if mask.packed is not None:
            lengths = [keys for _, keys in mask.packed.lengths()]
        changed["prefix_lengths"] = tuple(max(int(n * share) - k, 0) for k, n in enumerate(lengths))
    if "keys" in names and mask.key_lengths is not None:
        changed["key_lengths"] = tuple(max(int(case.seq_k * (1 - share / 2)) - 3 * k, 0) for k in range(case.batch))
    if "rows" in names and mask.query_lengths is not None:
        changed["query_lengths"] = tuple(max(int(case.seq_q * (1 - share / 2)) - 3 * k, 0) for k in range(case.batch))
    return changed

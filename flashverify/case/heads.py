"""The heads of a case as problems of their own: which values each has, and the case of one alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.case.changes import change
from flashverify.case.masks.mask import of_sequences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["head_regimes", "heads_alone", "stored_heads"]


def stored_heads(case: Case) -> int:
    """Heads of k in memory, of each batch entry."""
    return 1 if case.storage.expand else case.heads_kv


def head_regimes(case: Case) -> tuple[str, ...]:
    """The regime of each stored head of k, batch entries one after the other; nothing where all have the same."""
    if not case.values.mixed:
        return ()
    return tuple(case.values.of_head(number).regime for number in range(case.batch * stored_heads(case)))


def heads_alone(case: Case) -> Iterator[Case | None]:
    """Of a mixed case each stored head of k with its query heads as a case of its own, with the same q, k, v and dO; None where there is no such case."""
    if not case.values.mixed:
        return
    heads, mask = stored_heads(case), case.mask
    for number in range(case.batch * heads):
        yield change(
            case,
            batch=1,
            heads_q=case.heads_q // heads,
            heads_kv=1,
            mask=mask if mask.packed is not None else of_sequences(mask, [number // heads], None),
            values=case.values.of_head(number),
        )

"""Cases next to one: with other sizes, and with one thing less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.campaign.shrink.shrinker import shrink
from flashverify.case.changes import change
from flashverify.case.modifiers.logits import modifiers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case

__all__ = ["grown", "simpler", "without_others"]

_TILE = 128


def grown(case: Case) -> Iterator[Case]:
    """Cases with as many rows as keys, and with whole tiles of either."""
    rows, keys = case.seq_q, case.seq_k
    most, whole_rows, whole_keys = max(rows, keys), rows + -rows % _TILE, keys + -keys % _TILE
    for sizes in ((most, most), (rows, whole_keys), (whole_rows, keys), (max(whole_rows, whole_keys),) * 2):
        found = change(case, seq_q=sizes[0], seq_k=sizes[1])
        if found is not None and found != case and most > 1:
            yield found


def simpler(case: Case) -> Iterator[Case]:
    """Cases with a part less, or a size smaller: not those that have other values or only one key, on which most defects are gone."""
    steps = shrink(case)
    candidate = next(steps, None)
    while candidate is not None:
        plain = candidate.values.regime == case.values.regime and candidate.grad == case.grad
        if plain and (candidate.seq_k > 1 or candidate.seq_k == case.seq_k):
            yield candidate
        try:
            candidate = steps.send(False)
        except StopIteration:
            return


def without_others(case: Case, like: Case) -> Case | None:
    """A case without the modifiers that `like` has not; None where there are none of these."""
    kept = {modifier.name for modifier in modifiers_of(like)}
    found: Case | None = case
    for modifier in modifiers_of(case):
        if found is not None and modifier.name not in kept:
            found = change(found, **modifier.setting(found, modifier.absent))
    return None if found == case else found

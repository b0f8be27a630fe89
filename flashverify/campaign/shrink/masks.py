"""Simplifications of the mask: parts left out, packed sequences, sparse patterns, and its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashverify.case.changes import change, cumulate
from flashverify.case.masks.mask import PARTS, Packed, of_sequences, without_part
from flashverify.case.masks.part import down
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flashverify.case.case import Case
    from flashverify.case.masks.part import MaskPart

__all__ = ["numbers", "packed", "parts_off", "patterns"]


def parts_off(case: Case) -> Iterator[Case | None]:
    """The mask without one of its parts."""
    for part, _ in case.mask.given():
        yield change(case, mask=without_part(case.mask, part.name))


def packed(case: Case) -> Iterator[Case | None]:
    """One sequence alone, dense or packed; fewer sequences; shorter ones; nothing behind the last one."""
    mask = case.mask
    if mask.packed is None:
        return
    lengths = list(mask.packed.lengths())
    for s, (rows, keys) in enumerate(lengths):
        yield change(case, mask=of_sequences(mask, [s], None), seq_q=rows, seq_k=keys)
    ends = (max(mask.packed.cu_q[-1], min(case.seq_q, 1)), max(mask.packed.cu_k[-1], min(case.seq_k, 1)))
    yield change(case, seq_q=ends[0], seq_k=ends[1])
    everything = list(range(len(lengths)))
    if len(lengths) > 1:
        for s in everything:
            yield _repack(case, lengths[s : s + 1], [s])
        for s in everything:
            yield _repack(case, lengths[:s] + lengths[s + 1 :], everything[:s] + everything[s + 1 :])
    for s, (rows, keys) in enumerate(lengths):
        for size in down(max(rows, keys), 0):
            yield _repack(case, _with(lengths, s, (min(rows, size), min(keys, size))), everything)
        for size in down(rows, 0):
            yield _repack(case, _with(lengths, s, (size, keys)), everything)
        for size in down(keys, 0):
            yield _repack(case, _with(lengths, s, (rows, size)), everything)


def _with(lengths: list[tuple[int, int]], s: int, changed: tuple[int, int]) -> list[tuple[int, int]]:
    return [*lengths[:s], changed, *lengths[s + 1 :]]


def _repack(case: Case, lengths: list[tuple[int, int]], chosen: list[int]) -> Case | None:
    """The case with the `chosen` sequences, of these (rows, keys), and as much room behind the last one as before, at least 1 row and key."""
    before = case.mask.packed
    assert before is not None
    after = Packed(cumulate(rows for rows, _ in lengths), cumulate(keys for _, keys in lengths))
    try:
        mask = of_sequences(case.mask, chosen, after)
    except UsageError:
        return None
    seq_q = max(case.seq_q - before.cu_q[-1] + after.cu_q[-1], min(case.seq_q, 1))
    seq_k = max(case.seq_k - before.cu_k[-1] + after.cu_k[-1], min(case.seq_k, 1))
    return change(case, mask=mask, seq_q=seq_q, seq_k=seq_k)


def patterns(case: Case) -> Iterator[Case | None]:
    """Simpler patterns that a seed draws."""
    yield from _simpler(case, [part for part in PARTS if part.seeded])


def numbers(case: Case) -> Iterator[Case | None]:
    """Smaller numbers in the other parts, those first that say which rows and keys there are."""
    yield from _simpler(case, sorted((part for part in PARTS if not part.seeded), key=lambda part: not part.extent))


def _simpler(case: Case, parts: list[MaskPart]) -> Iterator[Case | None]:
    for part in parts:
        value = getattr(case.mask, part.name)
        for simpler in part.simpler(value) if value is not None else ():
            changed: dict[str, Any] = {part.name: simpler}
            yield change(case, mask=replace(case.mask, **changed))

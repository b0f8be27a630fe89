"""A case with some axes replaced, and everything that depends on them cut to fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from flashverify.case.masks.mask import Mask, Packed
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flashverify.case.case import Case

__all__ = ["change", "cumulate", "fitted"]


def change(case: Case, **changes: Any) -> Case | None:
    """`case` with axes replaced and what depends on them cut to fit; None where no such case exists.

    What the mask says of each sequence, packed sequences and edits are cut.
    """
    try:
        mask: Mask = changes.pop("mask", case.mask)
        batch = changes.get("batch", case.batch)
        mask = fitted(mask, batch, changes.get("seq_q", case.seq_q), changes.get("seq_k", case.seq_k))
        values = changes.pop("values", case.values)
        bare = replace(case, **changes, mask=mask, values=replace(values, edits=()))
        shapes = bare.editable
        fitting = (
            e
            for e in values.edits
            if e.tensor in shapes and all(i < n for i, n in zip(e.index, shapes[e.tensor], strict=True))
        )
        return replace(bare, values=replace(values, edits=tuple(fitting)))
    except UsageError:
        return None


def fitted(mask: Mask, batch: int, seq_q: int, seq_k: int) -> Mask:
    """The mask with every sequence cut at the end of the buffers, and what belongs to a sequence with it."""
    lengths: list[tuple[int, int]] = [(seq_q, seq_k)] * batch
    changed: dict[str, Any] = {}
    if mask.packed is not None:
        packed = mask.packed
        cut = Packed(tuple(min(c, seq_q) for c in packed.cu_q), tuple(min(c, seq_k) for c in packed.cu_k))
        changed["packed"], lengths = cut, list(cut.lengths())
    for part, value in mask.given():
        pieces = part.per_sequence(value, mask)
        if pieces is not None:
            cut_pieces = [part.cut(piece, *size) for piece, size in zip(pieces, lengths, strict=False)]
            changed[part.name] = part.join(cut_pieces, packed=mask.packed is not None)
        elif part.name not in changed:
            changed[part.name] = part.cut(value, seq_q, seq_k)
    return replace(mask, **changed)


def cumulate(lengths: Iterable[int]) -> tuple[int, ...]:
    """Cumulative lengths, from 0."""
    return tuple(accumulate(lengths, initial=0))

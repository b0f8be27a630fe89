"""Wrong semantics of packed sequences: numbers of keys of others, keys of others, rows on the wrong side of a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypothesis import TILES, Alternative, Semantics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene

    Limits = Callable[[Tensor, Tensor, Tensor], Iterator[tuple[Tensor, Tensor, str]]]

__all__ = ["PACKED_PLACES", "packed_tables", "pairs_seen"]

_BANDS = frozenset({"packed", "causal", "window", "window_alignment"})


def packed_tables(scene: Scene) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """First key, number of keys, first row and number of rows of each packed sequence; None of other cases, or with other parts."""
    packed = scene.case.mask.packed
    if packed is None or not scene.case.mask.parts() <= _BANDS or not packed.lengths():
        return None
    keys, rows = torch.tensor(packed.cu_k), torch.tensor(packed.cu_q)
    return keys[:-1], keys.diff(), rows[:-1], rows.diff()


def pairs_seen(scene: Scene, first: Tensor, count: Tensor, sequence: Tensor, row: Tensor, rows: Tensor) -> Tensor:
    """The pairs `[B, 1, Sq, Sk]` of rows that are row `row` of `rows` of a sequence whose `count` keys begin at `first`.

    `sequence`, `row` and `rows` are `[B, Sq]`; a number of the sequence behind the last one sees nothing.
    """
    mask = scene.case.mask
    inside = sequence < len(first)
    at = sequence.clamp(max=len(first) - 1)
    number = torch.arange(scene.case.seq_k).view(1, 1, 1, -1) - first[at][:, None, :, None]
    keys = count[at][:, None, :, None]
    see = (number >= 0) & (number < keys) & inside[:, None, :, None]
    shift = keys - rows[:, None, :, None] if mask.aligned_at_end else 0
    position = row[:, None, :, None] + shift
    left, right = mask.window or (None, None)
    if mask.causal is not None:
        see = see & (number <= position)
    if left is not None:
        see = see & (number >= position - left)
    if right is not None:
        see = see & (number <= position + right)
    return see


def _limits(change: Limits) -> Callable[[Scene], Iterator[Alternative]]:
    """Other first keys and numbers of keys, functions of the declared ones and of the numbers of rows."""

    def build(scene: Scene) -> Iterator[Alternative]:
        tables = packed_tables(scene)
        if tables is None:
            return
        first, count, _, rows = tables
        at = scene.at
        for begin, length, detail in change(first, count, rows):
            if torch.equal(begin, first) and torch.equal(length, count):
                continue
            see = pairs_seen(scene, begin, length, at.row_sequence, at.row, at.rows)
            yield Alternative(inputs=raw(scene, replace(scene.inputs, visible=see)), detail=detail)

    return build


def _rows_moved(by: int) -> Callable[[Scene], Iterator[Alternative]]:
    """The limits of the rows lie `by` rows further on: a row at a limit belongs to the sequence on its other side."""

    def build(scene: Scene) -> Iterator[Alternative]:
        tables = packed_tables(scene)
        if tables is None:
            return
        first, count, begin, rows = tables
        ends = (begin + rows)[:-1] + by
        place = torch.arange(scene.case.seq_q).view(1, -1)
        last = scene.at.row_sequence == len(first)
        sequence = torch.bucketize(place, ends.contiguous(), right=True)
        starts = torch.cat([begin[:1], ends])
        lengths = torch.cat([ends, (begin + rows)[-1:]]) - starts
        if bool((lengths < 0).any()) or torch.equal(sequence.where(~last, 0), scene.at.row_sequence.where(~last, 0)):
            return
        moved = sequence.where(~last, torch.tensor(len(first)))
        see = pairs_seen(scene, first, count, moved, place - starts[sequence], lengths[sequence])
        yield Alternative(inputs=raw(scene, replace(scene.inputs, visible=see)))

    return build


def _rounded(first: Tensor, count: Tensor, _rows: Tensor) -> Iterator[tuple[Tensor, Tensor, str]]:
    for size in TILES:
        yield first, -(-count // size) * size, f"of {size}"


PACKED_PLACES = (
    Semantics(
        name="packed-empty-sequence-has-a-key",
        sentence="a packed sequence without keys sees one, the first key of the next sequence or what lies behind the last one",
        build=_limits(lambda first, count, _rows: iter([(first, count.clamp(min=1), "")])),
    ),
    Semantics(
        name="packed-one-key-early",
        sentence="the keys of a packed sequence begin one too early, with the last key of the one before",
        build=_limits(
            lambda first, count, _rows: iter(
                [((first - 1).clamp(min=0), count + (first > 0).long(), ""), ((first - 1).clamp(min=0), count, "")]
            )
        ),
    ),
    Semantics(
        name="packed-keys-of-first-sequence",
        sentence="every packed sequence sees keys from the begin of the buffer",
        build=_limits(
            lambda first, count, _rows: iter(
                [(first * 0, count, ""), (first[:1].expand_as(first), count[:1].expand_as(count), "")]
            )
        ),
    ),
    Semantics(
        name="packed-keys-of-next-sequence",
        sentence="a packed sequence sees the keys of the next one",
        build=_limits(
            lambda first, count, _rows: iter(
                [(torch.cat([first[1:], first[-1:]]), torch.cat([count[1:], count[-1:]]), "")]
            )
        ),
    ),
    Semantics(
        name="packed-as-many-keys-as-first",
        sentence="every packed sequence is taken to have as many keys as the first one",
        build=_limits(lambda first, count, _rows: iter([(first, count[:1].expand_as(count), "")])),
    ),
    Semantics(
        name="packed-as-many-keys-as-rows",
        sentence="a packed sequence is taken to have as many keys as queries",
        build=_limits(lambda first, _count, rows: iter([(first, rows, "")])),
    ),
    Semantics(
        name="packed-keys-to-end-of-tile",
        sentence="a packed sequence sees keys up to the end of a tile: those of the next one too",
        build=_limits(_rounded),
    ),
    Semantics(
        name="packed-first-row-to-the-one-before",
        sentence="the first row of a packed sequence is counted to the sequence before it",
        build=_rows_moved(1),
    ),
    Semantics(
        name="packed-last-row-to-the-next-one",
        sentence="the last row of a packed sequence is counted to the next sequence",
        build=_rows_moved(-1),
    ),
)

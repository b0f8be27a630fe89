"""Wrong semantics of packed sequences whose rows are looked for as if they were padded: in tables of pairs, and one row for each sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flashverify.case.masks.patterns import bitmap_tensor
from flashverify.diagnosis.hypotheses.lengths import raw
from flashverify.diagnosis.hypotheses.packed_places import packed_tables, pairs_seen
from flashverify.diagnosis.hypotheses.terms import split_biases, with_biases
from flashverify.diagnosis.hypothesis import Alternative, Expectations, Finish, Semantics
from flashverify.diagnosis.mask_tensors import with_parts
from flashverify.outputs import FORWARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from flashverify.diagnosis.observation import Scene
    from flashverify.truth import Inputs

__all__ = ["PADDED_TABLES"]


def _padded_rows(scene: Scene) -> Tensor | None:
    """The row of a table in which every sequence has as many rows as the longest one, `[Sq]`; None where that is as declared."""
    packed, at = scene.case.mask.packed, scene.at
    if packed is None or not at.rows.numel():
        return None
    inside = at.row_sequence[0] < len(packed.lengths())
    other = at.row_sequence[0] * at.rows[0][inside].amax() + at.row[0] if bool(inside.any()) else at.row[0]
    own = torch.arange(scene.case.seq_q)
    other = torch.where(inside, other, own)
    return None if torch.equal(other, own) else other


def _outside(rows: Tensor, scene: Scene) -> Finish:
    """Nothing is asked of rows that lie behind the table."""
    lost = (rows >= scene.case.seq_q).view(1, 1, -1)

    def finish(found: Expectations) -> Expectations:
        where = {"o": lost.unsqueeze(-1), "lse": lost, "dq": lost.unsqueeze(-1)}
        return {name: x.open(where[name]) if name in where else x for name, x in found.items()}

    return finish


def _either(scene: Scene, rows: Tensor, inputs: Inputs) -> Iterator[Alternative]:
    """Rows behind the table are the last one's, or hold anything."""
    yield Alternative(inputs=inputs, detail="those behind the table are its last one")
    yield Alternative(inputs=inputs, finish=_outside(rows, scene), outputs=FORWARD)


def _bits(scene: Scene) -> Iterator[Alternative]:
    bits, rows = bitmap_tensor(scene.case), _padded_rows(scene)
    if bits is not None and rows is not None:
        yield from _either(scene, rows, with_parts(scene, bitmap=bits[:, :, rows.clamp(max=bits.shape[2] - 1)]))


def _bias(scene: Scene) -> Iterator[Alternative]:
    (bias, alibi), rows = split_biases(scene), _padded_rows(scene)
    if bias is not None and rows is not None and bias.shape[2] == scene.case.seq_q:
        yield from _either(scene, rows, with_biases(scene, bias[:, :, rows.clamp(max=bias.shape[2] - 1)], alibi))


def _row_per_sequence(scene: Scene) -> Iterator[Alternative]:
    """Row r of the buffer is the one row of sequence r, where none has more than one and some have none."""
    tables = packed_tables(scene)
    if tables is None:
        return
    first, count, _, rows = tables
    if not rows.numel() or int(rows.amax()) != 1 or int(rows.amin()) != 0:
        return
    sequence = torch.arange(scene.case.seq_q).view(1, -1)
    see = pairs_seen(scene, first, count, sequence, sequence * 0, torch.ones_like(sequence))
    yield Alternative(inputs=raw(scene, replace(scene.inputs, visible=see)))


PADDED_TABLES = (
    Semantics(
        name="bitmap-of-padded-rows",
        sentence="the rows of the bitmap are looked for as if every packed sequence had as many as the longest one",
        build=_bits,
    ),
    Semantics(
        name="bias-of-padded-rows",
        sentence="the rows of the bias are looked for as if every packed sequence had as many as the longest one",
        build=_bias,
    ),
    Semantics(
        name="packed-row-for-each-sequence",
        sentence="where no packed sequence has more than one row, row r is taken for that of sequence r, also behind sequences without rows",
        build=_row_per_sequence,
    ),
)

"""Pairs of a row and a key as tensors that broadcast with each other: a tile of them, or a list of places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from flashverify.case.case import Case
    from flashverify.case.masks.positions import Positions

__all__ = ["Pairs", "pairs_at", "tile_of_pairs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of a case, int64: of a tile each `[B, 1, rows, keys]` with axes of size 1, of a list each `[n]`.

    Attributes:
        case: the problem.
        tile: the rows and keys of a tile, which has every entry of the batch and every head; None of a list.
        batch, head: entry of the batch and query head.
        row_index, key_index: numbers in the buffers.
        row, key: numbers within the sequence.
        row_sequence, key_sequence: the sequences.
        rows, keys: declared rows and keys of the row's sequence.
        key_limit: declared keys of the key's sequence.
        position: row + shift of the alignment: where the row stands for causal, window and ALiBi.
    """

    case: Case
    tile: tuple[slice, slice] | None
    batch: Tensor
    head: Tensor
    row_index: Tensor
    key_index: Tensor
    row: Tensor
    key: Tensor
    row_sequence: Tensor
    key_sequence: Tensor
    rows: Tensor
    keys: Tensor
    key_limit: Tensor
    position: Tensor

    def of(self, table: Tensor, rows: int = 1, keys: int = 1) -> Tensor:
        """What a table says of each pair; its end stands for what lies behind it.

        Args:
            table: `[B or 1, Hq or 1, ...]`, an entry per block.
            rows: of a block.
            keys: of a block.
        """
        if self.tile is not None and rows == keys == 1:
            return table[:, :, self.tile[0], self.tile[1]]
        row = (self.row_index // rows).clamp(max=table.shape[2] - 1)
        key = (self.key_index // keys).clamp(max=table.shape[3] - 1)
        if self.tile is not None:
            return table[:, :, row.view(-1, 1), key.view(1, -1)]
        return table[self.batch.clamp(max=table.shape[0] - 1), self.head.clamp(max=table.shape[1] - 1), row, key]


def tile_of_pairs(case: Case, at: Positions, rows: slice, keys: slice) -> Pairs:
    """The pairs of these rows and keys of the buffers, for every entry of the batch and every head."""
    device = at.row.device

    def of_rows(x: Tensor) -> Tensor:
        return x[:, None, rows, None]

    def of_keys(x: Tensor) -> Tensor:
        return x[:, None, None, keys]

    return Pairs(
        case=case,
        tile=(rows, keys),
        batch=torch.arange(case.batch, device=device).view(-1, 1, 1, 1),
        head=torch.arange(case.heads_q, device=device).view(1, -1, 1, 1),
        row_index=torch.arange(case.seq_q, device=device)[rows].view(1, 1, -1, 1),
        key_index=torch.arange(case.seq_k, device=device)[keys].view(1, 1, 1, -1),
        row=of_rows(at.row),
        key=of_keys(at.key),
        row_sequence=of_rows(at.row_sequence),
        key_sequence=of_keys(at.key_sequence),
        rows=of_rows(at.rows),
        keys=of_rows(at.keys),
        key_limit=of_keys(at.key_limit),
        position=of_rows(at.row) + of_rows(at.shift),
    )


def pairs_at(case: Case, at: Positions, places: Tensor) -> Pairs:
    """The pairs at `places`, int64 `[n, 4]`: batch, query head, row, key."""
    batch, head, row, key = places.unbind(1)
    return Pairs(
        case=case,
        tile=None,
        batch=batch,
        head=head,
        row_index=row,
        key_index=key,
        row=at.row[batch, row],
        key=at.key[batch, key],
        row_sequence=at.row_sequence[batch, row],
        key_sequence=at.key_sequence[batch, key],
        rows=at.rows[batch, row],
        keys=at.keys[batch, row],
        key_limit=at.key_limit[batch, key],
        position=at.row[batch, row] + at.shift[batch, row],
    )

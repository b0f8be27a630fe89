"""Where the rows and keys of a case lie: the sequence that each belongs to, and its number within that sequence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from flashverify.case.case import Case

__all__ = ["Positions", "positions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The rows and keys of a case, int64, `[B, Sq]` and `[B, Sk]`.

    In a dense problem the sequence is the batch entry and the numbers count from its start. What lies behind the last packed
    sequence has the sequence number n, one past the last, and length 0.

    Attributes:
        row_sequence: sequence of each row.
        key_sequence: sequence of each key.
        row: number within its sequence.
        key: number within its sequence.
        rows: declared rows of the row's sequence.
        keys: declared keys of the row's sequence.
        key_limit: declared keys of the key's sequence.
        shift: keys - rows under a bottom-right causal or window, else 0: row i stands at position i + shift for causal, window and ALiBi.
    """

    row_sequence: torch.Tensor
    key_sequence: torch.Tensor
    row: torch.Tensor
    key: torch.Tensor
    rows: torch.Tensor
    keys: torch.Tensor
    key_limit: torch.Tensor
    shift: torch.Tensor


def positions(case: Case, device: torch.device | str = "cpu") -> Positions:
    """The positions of all rows and keys of `case`, on `device`."""
    mask, packed = case.mask, case.mask.packed
    if packed is None:
        batch = torch.arange(case.batch).view(-1, 1)
        row_sequence, key_sequence = batch.expand(-1, case.seq_q), batch.expand(-1, case.seq_k)
        row = torch.arange(case.seq_q).expand(case.batch, -1)
        key = torch.arange(case.seq_k).expand(case.batch, -1)
        lengths_q = torch.tensor(mask.query_lengths or (case.seq_q,) * case.batch, dtype=torch.int64)
        lengths_k = torch.tensor(mask.key_lengths or (case.seq_k,) * case.batch, dtype=torch.int64)
    else:
        row_sequence, row = _split(packed.cu_q, case.seq_q)
        key_sequence, key = _split(packed.cu_k, case.seq_k)
        lengths_q, lengths_k = (
            torch.tensor([*(b - a for a, b in pairwise(cu)), 0], dtype=torch.int64) for cu in (packed.cu_q, packed.cu_k)
        )
    rows, keys, key_limit = lengths_q[row_sequence], lengths_k[row_sequence], lengths_k[key_sequence]
    shift = keys - rows if mask.aligned_at_end else torch.zeros_like(rows)
    return Positions(
        row_sequence=row_sequence.to(device),
        key_sequence=key_sequence.to(device),
        row=row.to(device),
        key=key.to(device),
        rows=rows.to(device),
        keys=keys.to(device),
        key_limit=key_limit.to(device),
        shift=shift.to(device),
    )


def _split(cu: tuple[int, ...], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequence and number within it of `size` positions, each `[1, size]`."""
    starts = torch.tensor(cu, dtype=torch.int64)
    place = torch.arange(size)
    sequence = torch.bucketize(place, starts[1:], right=True)
    return sequence.view(1, -1), (place - starts[sequence]).view(1, -1)

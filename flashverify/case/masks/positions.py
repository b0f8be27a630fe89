"""Where the rows and keys of a case lie: the sequence that each belongs to, and its number within that sequence."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.case.masks.mask import Packed

    Lengths = tuple[int, ...] | None
    Extent = tuple[int, int, int, Packed | None, Lengths, Lengths, bool]

__all__ = ["Positions", "extent_of", "positions", "positions_of", "shared_positions"]


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
    """The positions of all rows and keys of `case`, on `device`, in memory of their own."""
    return positions_of(extent_of(case), torch.device(device))


def shared_positions(case: Case, device: torch.device | str = "cpu") -> Positions:
    """The same in memory that all callers of one process share: none writes to it, and none hands it to a subject."""
    return _kept(extent_of(case), torch.device(device))


def extent_of(case: Case) -> Extent:
    """All of a case that its positions depend on: batch, rows, keys, packed sequences, declared lengths, and whether rows are aligned at the end."""
    mask = case.mask
    lengths = mask.query_lengths, mask.key_lengths
    return case.batch, case.seq_q, case.seq_k, mask.packed, *lengths, mask.aligned_at_end


@lru_cache(maxsize=8)
def _kept(extent: Extent, device: torch.device) -> Positions:
    with torch.inference_mode(False):  # autograd takes no tensors that were made in this mode
        return positions_of(extent, device)


def positions_of(extent: Extent, device: torch.device) -> Positions:
    """The positions of all cases of this extent, on `device`, in memory of their own."""
    batch, seq_q, seq_k, packed, query_lengths, key_lengths, at_end = extent
    if packed is None:
        entry = torch.arange(batch).view(-1, 1)
        row_sequence, key_sequence = entry.expand(-1, seq_q), entry.expand(-1, seq_k)
        row = torch.arange(seq_q).expand(batch, -1)
        key = torch.arange(seq_k).expand(batch, -1)
        lengths_q = torch.tensor(query_lengths or (seq_q,) * batch, dtype=torch.int64)
        lengths_k = torch.tensor(key_lengths or (seq_k,) * batch, dtype=torch.int64)
    else:
        row_sequence, row = _split(packed.cu_q, seq_q)
        key_sequence, key = _split(packed.cu_k, seq_k)
        lengths_q, lengths_k = (
            torch.tensor([*(b - a for a, b in pairwise(cu)), 0], dtype=torch.int64) for cu in (packed.cu_q, packed.cu_k)
        )
    rows, keys, key_limit = lengths_q[row_sequence], lengths_k[row_sequence], lengths_k[key_sequence]
    shift = keys - rows if at_end else torch.zeros_like(rows)
    return _moved(
        Positions(
            row_sequence=row_sequence,
            key_sequence=key_sequence,
            row=row,
            key=key,
            rows=rows,
            keys=keys,
            key_limit=key_limit,
            shift=shift,
        ),
        device,
    )


def _moved(here: Positions, device: torch.device) -> Positions:
    """Positions of host memory on a device, in one copy: a GPU is waited for at each."""
    if device.type == "cpu":
        return here
    parts = {field.name: getattr(here, field.name) for field in fields(here)}
    there = torch.cat([part.reshape(-1) for part in parts.values()]).to(device)
    cut = torch.split(there, [part.numel() for part in parts.values()])
    return Positions(**{name: x.view(part.shape) for (name, part), x in zip(parts.items(), cut, strict=True)})


def _split(cu: tuple[int, ...], size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequence and number within it of `size` positions, each `[1, size]`."""
    starts = torch.tensor(cu, dtype=torch.int64)
    place = torch.arange(size)
    sequence = torch.bucketize(place, starts[1:], right=True)
    return sequence.view(1, -1), (place - starts[sequence]).view(1, -1)

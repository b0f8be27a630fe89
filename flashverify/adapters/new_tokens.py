"""The keys of a cached problem apart: those of the new tokens, and those before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["last_keys", "too_few_keys", "without_last_keys"]


def last_keys(x: torch.Tensor, counts: torch.Tensor, rows: int) -> torch.Tensor:
    """The last `rows` keys of each sequence one after the other, `[B rows, Hkv, D]`, a guarded copy.

    Args:
        x: `[B, Hkv, Sk, D]`.
        counts: `[B]` int32, keys of each sequence.
        rows: at most the keys of any sequence.
    """
    import torch

    from flashverify.case.memory.handed import copied

    place = (counts.long() - rows).view(-1, 1) + torch.arange(rows, device=x.device)
    turned = x.transpose(1, 2)
    index = place[:, :, None, None].expand(-1, -1, *turned.shape[2:])
    return copied("new keys", turned.gather(1, index).flatten(0, 1))


def too_few_keys(case: Case) -> str | None:
    """Why a case has no such parts: a sequence has fewer keys than rows. None where every sequence has enough."""
    fewest = min(case.mask.key_lengths or (case.seq_k,))
    return f"a sequence of {fewest} keys, and {case.seq_q} new ones" if fewest < case.seq_q else None


def without_last_keys(indptr: torch.Tensor, indices: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`kv_indptr` and `kv_indices` without the last `rows` keys of each sequence; behind them lie the others."""
    import torch

    from flashverify.case.memory.handed import copied

    counts = indptr[1:] - indptr[:-1] - rows
    starts = torch.nn.functional.pad(counts.clamp(min=0).cumsum(0, dtype=torch.int32), (1, 0))
    place = torch.arange(len(indices), device=indices.device)
    sequence = torch.bucketize(place, indptr[1:].long(), right=True).clamp(max=len(counts) - 1)
    kept = (place < indptr[-1]) & (place - indptr.long()[sequence] < counts[sequence])
    order = torch.argsort((~kept).to(torch.uint8), stable=True)
    return copied("kv_indptr", starts), copied("kv_indices", indices[order])

"""The keys of a cached problem apart: those of the new tokens, and those before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.case.case import Case

__all__ = ["last_keys", "too_few_keys"]


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

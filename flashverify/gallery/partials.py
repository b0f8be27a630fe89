"""Partial results over two halves of the keys, for kernels that merge such results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from flashverify.case.problem import Problem

__all__ = ["halves"]


def halves(p: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """O and natural LSE over the first half of the keys, and over the second, each rounded once from float64.

    A row that sees no key of a half has O = 0 and LSE = -inf there, as FlashAttention returns.

    Returns:
        O `[B Sq, Hq, Dv]` in the dtype of q and LSE `[B Sq, Hq]` fp32 of the first half; then those of the second.
    """
    group, keys = p.case.heads_q // p.case.heads_kv, p.case.seq_k
    seen = torch.arange(keys, device=p.q.device)[None, :] < (
        p.key_lengths[:, None] if p.key_lengths is not None else torch.full((1, 1), keys, device=p.q.device)
    )
    k, v = (
        torch.where(seen[:, None, :, None], t, 0)
        .double()
        .repeat_interleave(group, dim=1)
        .expand(p.case.batch, -1, -1, -1)
        for t in (p.k, p.v)
    )
    s = (p.q.double() @ k.mT * p.scale).masked_fill(~seen[:, None, None, :], float("-inf"))
    found = []
    for part in (slice(0, keys // 2), slice(keys // 2, keys)):
        lse = s[..., part].logsumexp(-1)
        weights = (s[..., part] - lse.where(lse > float("-inf"), 0)[..., None]).exp()
        o = (weights @ v[:, :, part]).to(p.q.dtype)
        found += [o.transpose(1, 2).flatten(0, 1).contiguous(), lse.float().transpose(1, 2).flatten(0, 1).contiguous()]
    return found[0], found[1], found[2], found[3]

"""Partial results of attention over ranges of the keys, exact but for one rounding: what a merge is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flashverify.case.problem import Problem

__all__ = ["handed_over", "partial_results"]


def partial_results(p: Problem, ranges: list[tuple[int, int]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """O `[B, Hq, Sq, Dv]` and the natural LSE `[B, Hq, Sq]` of each range of the keys, float64; 0 and -inf in rows that see none of its keys.

    Masks, softcap and biases are those of the problem. What no row sees is taken as 0, so NaN in the padding goes nowhere.

    Args:
        p: the problem, without a sink and without dropout.
        ranges: first key and one past the last.
    """
    import torch

    case, bias, see = p.case, p.dense_bias(), p.dense_mask()
    whole = torch.ones(1, 1, case.seq_q, case.seq_k, dtype=torch.bool, device=p.q.device) if see is None else see
    whole = whole.expand(case.batch, case.heads_q, -1, -1)
    group = case.heads_q // case.heads_kv
    read = whole.any(2).unsqueeze(-1)
    rows = whole.any(3).unsqueeze(-1)
    k, v = (torch.where(read, x.detach().double().repeat_interleave(group, 1), 0.0) for x in (p.k, p.v))
    s = torch.where(rows, p.q.detach().double(), 0.0) @ k.mT * p.scale
    if p.softcap is not None:
        s = p.softcap * torch.tanh(s / p.softcap)
    s = (s if bias is None else s + bias.double()).masked_fill(~whole, float("-inf"))
    found = []
    for start, end in ranges:
        part = s[..., start:end]
        lse = torch.logsumexp(part, -1) if end > start else part.new_full(part.shape[:3], float("-inf"))
        weights = (part - lse.masked_fill(lse.isneginf(), 0.0).unsqueeze(-1)).exp()
        found.append((weights @ v[:, :, start:end], lse))
    return found


def handed_over(name: str, x: torch.Tensor, dtype: torch.dtype, *, kept: bool = True) -> torch.Tensor:
    """A tensor rounded once, in guarded memory of its own.

    Args:
        name: as damage calls it.
        x: float64.
        dtype: what it is rounded to.
        kept: a kernel that stores into it is told so.
    """
    import torch

    from flashverify.case.memory.handed import copied

    if kept:
        return copied(name, x.to(dtype))
    return torch.empty(x.shape, dtype=dtype, device=x.device).copy_(x)

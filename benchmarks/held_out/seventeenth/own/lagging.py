"""Attention of packed sequences in plain torch, forward only, written for this set: a pivot that lags behind the running maximum.

A row keeps the pivot of its exponents until its maximum is more than `LAG` above it, so that the sums are seldom rescaled. It takes groups of
heads, causal masks, windows and a softcap. `q` is `[1, Hq, rows, D]`; a sequence is a slice of the rows and one of the keys.
"""

import torch

from flashverify import Contract, Forward, Supports, subject

CHUNK = 24
LAG = 6.0


def shown(i, j, shift, left, right):
    """Which keys `j` the rows `i` see."""
    place = i[:, None] + shift
    see = torch.ones(len(i), len(j), dtype=torch.bool, device=i.device)
    if left is not None:
        see &= j >= place - left
    if right is not None:
        see &= j <= place + right
    return see


def one_sequence(q, k, v, scale, softcap, shift, left, right):
    """O and the natural LSE of a sequence, fp32; `q` is `[Hkv, group, rows, D]`, k and v `[Hkv, keys, ...]`."""
    rows, keys = q.shape[2], k.shape[1]
    i = torch.arange(rows, device=q.device)
    best = q.new_full((*q.shape[:3], 1), -torch.inf)
    pivot, total = best.clone(), torch.zeros_like(best)
    acc = q.new_zeros(*q.shape[:3], v.shape[2])
    for start in range(0, keys, CHUNK):
        part = slice(start, min(start + CHUNK, keys))
        j = torch.arange(part.start, part.stop, device=q.device)
        s = torch.matmul(q, k[:, None, part].transpose(2, 3)) * scale
        if softcap is not None:
            s = torch.tanh(s / softcap) * softcap
        s = s.masked_fill(~shown(i, j, shift, left, right), -torch.inf)
        best = torch.maximum(best, s.amax(-1, keepdim=True))
        moved = torch.where(best > pivot + LAG, best, pivot)
        finite = torch.where(moved == -torch.inf, 0.0, moved)
        p, old = torch.exp(s - finite), torch.exp(pivot - finite)
        total = total * old + p.sum(-1, keepdim=True)
        acc = acc * old + torch.matmul(p, v[:, None, part])
        pivot = moved
    o = acc / torch.where(total == 0.0, 1.0, total)
    lse = torch.where(total == 0.0, -torch.inf, pivot + torch.log(total))
    return o, lse[..., 0]


@subject(
    supports=Supports(
        masks=("causal", "window", "packed"),
        required_masks=("packed",),
        logits=("softcap",),
        scales=("default", "positive", "negative"),
        backward=False,
    ),
    contract=Contract(gradients=frozenset()),
)
def lagging(p):
    """The adapter."""
    (_, heads, rows, _), (_, kv_heads, _, dv) = p.q.shape, p.v.shape
    o = torch.empty(1, heads, rows, dv, dtype=p.q.dtype, device=p.q.device)
    lse = torch.empty(1, heads, rows, dtype=torch.float32, device=p.q.device)
    left, right = p.window or (None, None)
    right = 0 if p.causal is not None else right
    cu_q, cu_k = p.cu_q.tolist(), p.cu_k.tolist()
    for s in range(len(cu_q) - 1):
        of_q, of_k = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        q = p.q[0, :, of_q].float().unflatten(0, (kv_heads, -1))
        k, v = p.k[0, :, of_k].float(), p.v[0, :, of_k].float()
        shift = k.shape[1] - q.shape[2] if "bottom-right" in (p.causal, p.window_alignment) else 0
        found, found_lse = one_sequence(q, k, v, p.scale, p.softcap, shift, left, right)
        o[0, :, of_q] = found.flatten(0, 1).to(o.dtype)
        lse[0, :, of_q] = found_lse.flatten(0, 1)
    return Forward(o, lse)


SUBJECT = lagging

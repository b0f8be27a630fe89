"""Attention over K and V in int8 with zero points, in plain torch, written for this set: keys in parts of 48; forward only, in fp32."""

import torch

from flashverify import Supports, subject

PART = 48


def numbers(codes, scale, zero, first, keys_per_scale):
    """`[B, Hkv, keys, D]` fp32: what the codes of the keys from `first` on stand for; scales of the tensor, a head, a token or a block."""
    x = codes.float()
    j = first + torch.arange(codes.shape[2])
    group = (j // keys_per_scale).clamp(max=scale.shape[2] - 1)
    if zero is not None:
        x = x - zero[:, :, group, None].float()
    return x * scale[:, :, group, None]


def attention(x, *, scale, causal):
    """O in the dtype of q and the natural LSE `[B, Hq, Sq]`; causal rows end at the last key."""
    q, group = x.q.float(), x.q.shape[1] // x.k.shape[1]
    rows, keys = q.shape[2], x.k.shape[2]
    n = torch.full((q.shape[0],), keys) if x.key_lengths is None else x.key_lengths.long()
    n = n[:, None, None]
    at = torch.arange(rows)[:, None] + n - rows
    m = torch.full(q.shape[:3], -torch.inf)
    total, acc = torch.zeros(q.shape[:3]), torch.zeros(*q.shape[:3], x.v.shape[3])
    for first in range(0, keys, PART):
        part = slice(first, min(first + PART, keys))
        j = torch.arange(part.start, part.stop)
        inside = (j < n)[:, None]
        see = (inside & (j <= at)[:, None]) if causal else inside.expand(-1, -1, rows, -1)
        k = numbers(x.k[:, :, part], x.k_scale, x.k_zero, first, x.keys_per_scale)
        v = numbers(x.v[:, :, part], x.v_scale, x.v_zero, first, x.keys_per_scale)
        k, v = (torch.where(inside.mT, y, 0.0).repeat_interleave(group, 1) for y in (k, v))
        s = (q @ k.mT * scale).masked_fill(~see, -torch.inf)
        m_new = torch.maximum(m, s.amax(-1))
        pivot = torch.where(m_new == -torch.inf, 0.0, m_new)
        weights, alpha = torch.exp(s - pivot[..., None]), torch.exp(m - pivot)
        total = total * alpha + weights.sum(-1)
        acc = acc * alpha[..., None] + weights @ v
        m = m_new
    divisor = torch.where(total == 0, 1.0, total)
    return (acc / divisor[..., None]).to(x.dtype), m + torch.log(divisor)


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        causal=("bottom-right",),
        scales=("default", "positive"),
        quantised=("int8",),
        zero_points=True,
        non_finite=False,
        backward=False,
    ),
    device="cpu",
)
def codes(p):
    """The adapter."""
    return attention(p.quantised(), scale=p.scale, causal=p.causal is not None)


SUBJECT = codes

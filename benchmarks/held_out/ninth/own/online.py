"""Attention by an online softmax over chunks of keys in plain torch, differentiated by autograd, written for this set: fp32, rounded once.

The maximum is a constant to autograd: it cancels in O, and in the LSE as long as it is one in both places.
"""

import torch

from flashverify import Contract, Supports, subject

CHUNK = 32


def shown(p):
    """`[B, 1, Sq, Sk]`: which keys each row sees; `[B, 1, Sk, 1]`: which keys count."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    n = torch.full((p.q.shape[0],), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None]
    i, j = torch.arange(rows)[:, None], torch.arange(keys)
    counts = j < n
    at = i + (n - rows) if p.causal == "bottom-right" else i + 0 * n
    see = counts & (j <= at) if p.causal is not None else counts.expand(-1, -1, rows, -1)
    return see, counts.mT


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("bias",),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    device="cpu",
)
def online(p):
    """O and the natural LSE."""
    group, keys = p.q.shape[1] // p.k.shape[1], p.k.shape[2]
    see, counts = shown(p)
    x = p.q.float() * p.scale
    wide_k, wide_v = (torch.where(counts, y.float(), 0.0).repeat_interleave(group, 1) for y in (p.k, p.v))
    m = torch.full((*p.q.shape[:3], 1), -torch.inf)
    total, acc = torch.zeros_like(m), torch.zeros(*p.q.shape[:3], p.v.shape[3])
    for start in range(0, keys, CHUNK):
        part = slice(start, min(start + CHUNK, keys))
        s = x @ wide_k[:, :, part].mT
        if p.bias is not None:
            s = s + p.bias[..., part].float()
        s = torch.where(see[..., part], s, -torch.inf)
        m_new = torch.maximum(m, s.detach().amax(-1, keepdim=True))
        pivot = torch.where(m_new == -torch.inf, 0.0, m_new)
        weights, alpha = torch.exp(s - pivot), torch.exp(m - pivot)
        total = total * alpha + weights.sum(-1, keepdim=True)
        acc = acc * alpha + weights @ wide_v[:, :, part]
        m = m_new
    divisor = torch.where(total == 0, 1.0, total)
    o = acc / divisor
    lse = torch.where(total == 0, -torch.inf, m.detach() + torch.log(divisor))
    return o.to(p.q.dtype), lse[..., 0]


SUBJECT = online

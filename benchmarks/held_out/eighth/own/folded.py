"""Attention over folded heads in plain torch with a backward by hand, written for this set: the query heads of a kv head are rows of one matrix.

Row `member * Sq + i` of a kv head is query i of that member of its group. Everything is fp32 and rounded once.
"""

import torch

from flashverify import Contract, Supports, subject


def fold(x, kv_heads):
    """`[B, Hq, Sq, ...]` -> `[B, Hkv, group * Sq, ...]`, fp32."""
    return x.float().unflatten(1, (kv_heads, -1)).flatten(2, 3)


def unfold(x, rows):
    """The inverse of `fold`."""
    return x.unflatten(2, (-1, rows)).flatten(1, 2)


def slopes_of_rows(slopes, kv_heads, rows):
    """The ALiBi slope of each folded row, `[Hkv, group * Sq]`."""
    return slopes.view(kv_heads, -1).repeat_interleave(rows, 1)


def pairs(p):
    """Which folded row sees which key, `[B, 1, group * Sq, Sk]`, and how far apart they are."""
    rows, keys, batch = p.q.shape[2], p.k.shape[2], p.q.shape[0]
    n = torch.full((batch,), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None]
    i = torch.arange(rows).repeat(p.q.shape[1] // p.k.shape[1])[:, None]
    j = torch.arange(keys)
    at = i + (n - rows) if p.causal == "bottom-right" else i + 0 * n
    see = (j < n) & (j <= at) if p.causal is not None else (j < n).expand(-1, -1, i.shape[0], -1)
    return see, (at - j).abs()


def logits(x, k, p, distance):
    """Logits of folded rows, whose products are scaled already."""
    s = x @ k.float().mT
    if p.slopes is not None:
        s = s - slopes_of_rows(p.slopes, k.shape[1], p.q.shape[2])[..., None] * distance.float()
    return s


class Folded(torch.autograd.Function):
    """O and the natural LSE, and the gradients of q, k and v."""

    @staticmethod
    def forward(ctx, q, k, v, p):
        """All keys at once."""
        see, distance = pairs(p)
        x = fold(q, k.shape[1]) * p.scale
        s = logits(x, k, p, distance).masked_fill(~see, -torch.inf)
        m = s.amax(-1, keepdim=True) if k.shape[2] else torch.full((*s.shape[:3], 1), -torch.inf)
        weights = torch.exp(s - torch.where(m == -torch.inf, 0.0, m))
        total = weights.sum(-1, keepdim=True)
        divisor = torch.where(total == 0, 1.0, total)
        o = unfold(weights @ torch.where(see.any(-2)[..., None], v.float(), 0.0) / divisor, q.shape[2]).to(q.dtype)
        lse = unfold((m + torch.log(divisor))[..., 0], q.shape[2])
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned."""
        (q, k, v, o, lse), p = ctx.saved_tensors, ctx.p
        see, distance = pairs(p)
        kv_heads, rows = k.shape[1], q.shape[2]
        x, dx = fold(q, kv_heads) * p.scale, fold(do, kv_heads)
        delta = (fold(o, kv_heads) * dx).sum(-1)
        if dlse is not None:
            delta = delta - fold(dlse, kv_heads)
        ends = fold(lse, kv_heads)
        ends = torch.where(ends == -torch.inf, 0.0, ends)[..., None]
        weights = torch.where(see, torch.exp(logits(x, k, p, distance) - ends), 0.0)
        ds = torch.where(see, weights * (dx @ v.float().mT - delta[..., None]), 0.0)
        dq = unfold(ds @ torch.where(see.any(-2)[..., None], k.float(), 0.0) * p.scale, rows)
        dk = ds.mT @ x
        dv = weights.mT @ dx
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        dlse=True,
        strided=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=True),
    device="cpu",
)
def folded(p):
    """The adapter."""
    return Folded.apply(p.q, p.k, p.v, p)


SUBJECT = folded

"""Attention whose keys are centred first, in plain torch with a backward by hand, written for this set: fp64, rounded once.

A vector that all keys share moves every logit of a row alike: O does not change, and the LSE gets back what it lost.
"""

import torch

from flashverify import Contract, Supports, subject

LARGEST = 1024.0


def counting(p):
    """`[B, 1, Sk, 1]`: which keys count; `[B, 1, Sq, Sk]`: which of them each row sees."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    n = torch.full((p.q.shape[0],), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None]
    i, j = torch.arange(rows)[:, None], torch.arange(keys)
    counts = j < n
    at = i + (n - rows) if p.causal == "bottom-right" else i + 0 * n
    see = counts & (j <= at) if p.causal is not None else counts.expand(-1, -1, rows, -1)
    return counts.mT, see


def centred(k, counts):
    """The keys less their mean, 0 where they do not count, and the mean `[B, Hkv, 1, D]`, cut at a size from which on fp64 would lose the others."""
    wide = torch.where(counts, k.double(), 0.0)
    mean = (wide.sum(2, keepdim=True) / counts.sum(2, keepdim=True).clamp(min=1)).clamp(-LARGEST, LARGEST)
    return torch.where(counts, wide - mean, 0.0), mean


def logits(q, k, counts, scale):
    """`[B, Hq, Sq, Sk]` of the centred keys, and `[B, Hq, Sq, 1]`, what all of a row lost."""
    group = q.shape[1] // k.shape[1]
    rest, mean = (x.repeat_interleave(group, 1) for x in centred(k, counts))
    x = q.double() * scale
    return x @ rest.mT, x @ mean.mT


class Centred(torch.autograd.Function):
    """O and the natural LSE, and the gradients of q, k and v."""

    @staticmethod
    def forward(ctx, q, k, v, p):
        """All keys at once."""
        counts, see = counting(p)
        s, lost = logits(q, k, counts, p.scale)
        s = s.masked_fill(~see, -torch.inf)
        m = s.amax(-1, keepdim=True) if k.shape[2] else torch.full_like(lost, -torch.inf)
        weights = torch.exp(s - torch.where(m == -torch.inf, 0.0, m))
        total = weights.sum(-1, keepdim=True)
        divisor = torch.where(total == 0, 1.0, total)
        wide_v = torch.where(counts, v.double(), 0.0).repeat_interleave(q.shape[1] // k.shape[1], 1)
        o = (weights @ wide_v / divisor).to(q.dtype)
        lse = (m + torch.log(divisor) + lost)[..., 0].float()
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned."""
        (q, k, v, o, lse), p = ctx.saved_tensors, ctx.p
        counts, see = counting(p)
        kv_heads = k.shape[1]
        s, lost = logits(q, k, counts, p.scale)
        ends = torch.where(lse == -torch.inf, 0.0, lse)[..., None]
        weights = torch.where(see, torch.exp(s + lost - ends), 0.0)
        wide_k, wide_v = (
            torch.where(counts, x.double(), 0.0).repeat_interleave(q.shape[1] // kv_heads, 1) for x in (k, v)
        )
        dx = do.double()
        delta = (o.double() * dx).sum(-1, keepdim=True)
        if dlse is not None:
            delta = delta - dlse[..., None]
        ds = weights * (dx @ wide_v.mT - delta)
        dq = ds @ wide_k * p.scale
        dk = (ds.mT @ q.double() * p.scale).unflatten(1, (kv_heads, -1)).sum(2)
        dv = (weights.mT @ dx).unflatten(1, (kv_heads, -1)).sum(2)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=True),
    device="cpu",
)
def centred_keys(p):
    """The adapter."""
    return Centred.apply(p.q, p.k, p.v, p)


SUBJECT = centred_keys

"""Attention in plain torch whose backward walks blocks of keys and adds to dQ, written for this set: fp32, rounded once."""

import torch

from flashverify import Contract, Supports, subject

KEYS = 32


def shift_of(p):
    """How far the diagonal is moved to end at the last key."""
    return p.k.shape[2] - p.q.shape[2] if p.causal == "bottom-right" else 0


def shown(p, rows, keys):
    """`[rows, keys]`: which of these keys these rows see."""
    at = torch.arange(rows.start, rows.stop)[:, None] + shift_of(p)
    j = torch.arange(keys.start, keys.stop)[None, :]
    see = (j <= at) if p.causal is not None else torch.ones(at.shape[0], j.shape[1], dtype=torch.bool)
    return see if p.window is None or p.window[0] is None else see & (j >= at - p.window[0])


class KeyBlocks(torch.autograd.Function):
    """O and the natural LSE, and the gradients of q, k and v."""

    @staticmethod
    def forward(ctx, q, k, v, p):
        """All keys at once."""
        group = q.shape[1] // k.shape[1]
        wide_k, wide_v = (x.float().repeat_interleave(group, 1) for x in (k, v))
        see = shown(p, slice(0, q.shape[2]), slice(0, k.shape[2]))
        s = (q.float() @ wide_k.mT * p.scale).masked_fill(~see, -torch.inf)
        m = s.amax(-1, keepdim=True) if k.shape[2] else torch.full((*q.shape[:3], 1), -torch.inf)
        weights = torch.exp(s - torch.where(m == -torch.inf, 0.0, m))
        total = weights.sum(-1, keepdim=True)
        divisor = torch.where(total == 0, 1.0, total)
        o, lse = (weights @ wide_v / divisor).to(q.dtype), (m + torch.log(divisor))[..., 0]
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned: a block of keys and the rows that may see it at a time."""
        (q, k, v, o, lse), p = ctx.saved_tensors, ctx.p
        group, rows, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
        dq, dk, dv = (torch.zeros(x.shape) for x in (q, k, v))
        delta = (o.float() * do.float()).sum(-1) - (0.0 if dlse is None else dlse)
        pivot = torch.where(lse == -torch.inf, 0.0, lse)
        for start in range(0, keys, KEYS):
            part = slice(start, min(start + KEYS, keys))
            first = 0 if p.causal is None else min(max(start - shift_of(p), 0), rows)
            last = rows
            if p.window is not None and p.window[0] is not None:
                last = min(max(part.stop + p.window[0] - shift_of(p), first), rows)
            near = slice(first, last)
            wide_k, wide_v = (x[:, :, part].float().repeat_interleave(group, 1) for x in (k, v))
            x, dx, see = q[:, :, near].float(), do[:, :, near].float(), shown(p, near, part)
            s = x @ wide_k.mT * p.scale
            weights = torch.where(see, torch.exp(s - pivot[:, :, near, None]), 0.0)
            ds = torch.where(see, weights * (dx @ wide_v.mT - delta[:, :, near, None]), 0.0)
            dq[:, :, near] += ds @ wide_k * p.scale
            dk[:, :, part] = (ds.mT @ x * p.scale).unflatten(1, (-1, group)).sum(2)
            dv[:, :, part] = (weights.mT @ dx).unflatten(1, (-1, group)).sum(2)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


@subject(
    supports=Supports(
        masks=("causal", "window"),
        window_sides=("left",),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=True),
    device="cpu",
)
def key_blocks(p):
    """The adapter."""
    return KeyBlocks.apply(p.q, p.k, p.v, p)


SUBJECT = key_blocks

"""Attention over the keys of an encoder with a bias, in plain torch with a backward by hand, written for this set: fp32, rounded once."""

import torch

from flashverify import Contract, Supports, subject


def lengths_of(p):
    """Keys of each sequence."""
    return [p.k.shape[2]] * p.q.shape[0] if p.key_lengths is None else p.key_lengths.tolist()


def planes(bias, b, heads):
    """Which of the `[Sq, Sk]` planes of a bias the heads of sequence `b` take, whatever axes it is broadcast over."""
    count = bias.shape[0] * bias.shape[1]
    return (b * heads + torch.arange(heads)) % count


def bias_of(bias, b, heads, n):
    """The bias of a sequence in fp32, `[Hq, Sq, n]`; 0 without one."""
    if bias is None:
        return 0.0
    return bias.flatten(0, 1)[planes(bias, b, heads), :, :n].float()


class Cross(torch.autograd.Function):
    """O and the natural LSE, and the gradients of q, k, v and the bias."""

    @staticmethod
    def forward(ctx, q, k, v, bias, p):
        """One sequence at a time."""
        group, heads = q.shape[1] // k.shape[1], q.shape[1]
        o = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
        lse = torch.full(q.shape[:3], -torch.inf)
        for b, n in enumerate(lengths_of(p)):
            if not n:
                continue
            wide_k, wide_v = (x[b, :, :n].float().repeat_interleave(group, 0) for x in (k, v))
            s = q[b].float() @ wide_k.mT * p.scale + bias_of(bias, b, heads, n)
            m = s.amax(-1, keepdim=True)
            weights = torch.exp(s - m)
            total = weights.sum(-1, keepdim=True)
            o[b] = (weights @ wide_v / total).to(q.dtype)
            lse[b] = (m + torch.log(total))[..., 0]
        ctx.save_for_backward(q, k, v, bias, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned."""
        (q, k, v, bias, o, lse), p = ctx.saved_tensors, ctx.p
        group, heads = q.shape[1] // k.shape[1], q.shape[1]
        dq, dk, dv = (torch.zeros(x.shape) for x in (q, k, v))
        dbias = None if bias is None else torch.zeros(bias.flatten(0, 1).shape, dtype=torch.float64)
        delta = (o.float() * do.float()).sum(-1, keepdim=True)
        if dlse is not None:
            delta = delta - dlse[..., None]
        for b, n in enumerate(lengths_of(p)):
            if not n:
                continue
            x, dx = q[b].float(), do[b].float()
            wide_k, wide_v = (y[b, :, :n].float().repeat_interleave(group, 0) for y in (k, v))
            dot = x @ wide_k.mT
            z = dot * p.scale + bias_of(bias, b, heads, n)
            weights = torch.exp(z - lse[b, ..., None])
            ds = weights * (dx @ wide_v.mT - delta[b])
            if dbias is not None:
                dbias[..., :n].index_add_(0, planes(bias, b, heads), ds.double())
            dq[b] = ds @ wide_k * p.scale
            dk[b, :, :n] = (ds.mT @ x * p.scale).unflatten(0, (-1, group)).sum(1)
            dv[b, :, :n] = (weights.mT @ dx).unflatten(0, (-1, group)).sum(1)
        dbias = None if dbias is None else dbias.to(bias.dtype).view(bias.shape)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dbias, None


@subject(
    supports=Supports(
        masks=("key_lengths",),
        logits=("bias",),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=True, gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    device="cpu",
)
def cross(p):
    """The adapter."""
    return Cross.apply(p.q, p.k, p.v, p.bias, p)


SUBJECT = cross

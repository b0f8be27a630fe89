"""A right forward and backward in plain torch, a line of which tests make wrong."""

import torch

from flashverify import Contract, Supports, subject


def scores(q, k, scale, causal):
    s = (q @ k.mT) * scale
    rows, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    return torch.where(keys <= rows, s, -torch.inf) if causal else s


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, causal):
        s = scores(q.double(), k.double(), scale, causal)
        lse = torch.logsumexp(s, -1)
        o = torch.exp(s - lse[..., None]) @ v.double()
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.options = scale, causal
        return o.to(q.dtype), lse.float()

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse = (x.double() for x in ctx.saved_tensors)
        scale, causal = ctx.options
        g = do.double()
        w = torch.exp(scores(q, k, scale, causal) - lse[..., None])
        delta = (g * o).sum(-1, keepdim=True)
        dv = w.mT @ g
        dw = g @ v.mT
        ds = w * (dw - delta + dlse.double()[..., None])
        dq = ds @ k * scale
        dk = ds.mT @ q * scale
        return dq.to(do.dtype), dk.to(do.dtype), dv.to(do.dtype), None, None


@subject(
    supports=Supports(dtypes=("fp32",), masks=("causal",), causal=("top-left",), gqa=False),
    contract=Contract(),
    device="cpu",
)
def small(p):
    return Attention.apply(p.q, p.k, p.v, p.scale, p.causal is not None)

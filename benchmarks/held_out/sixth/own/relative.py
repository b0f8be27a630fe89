"""Attention with a relative position bias in plain torch and a backward by hand, written for this set: rows in chunks of 32, fp32."""

import torch

from flashverify import Contract, Supports, subject

CHUNK = 32


def lengths_of(p):
    """`[B]` keys that count."""
    return torch.full((p.q.shape[0],), p.k.shape[2]) if p.key_lengths is None else p.key_lengths.long()


def places(p, rows, n):
    """`[rows]`: where these rows stand among the `n` keys of their sequence."""
    return rows + (n - p.q.shape[2] if p.causal == "bottom-right" else 0)


def buckets_of(p, at, keys):
    """`[rows, keys]`: the bucket of each pair."""
    reach = p.distance_buckets.shape[0] // 2
    distance = torch.arange(keys)[None, :] - at[:, None]
    return p.distance_buckets.long()[distance.clamp(-reach, reach) + reach]


def logits(p, x, wide_k, at, table):
    """`[Hq, rows, n]` with the bias, -inf where the causal mask hides the key."""
    keys = wide_k.shape[1]
    s = x @ wide_k.mT * p.scale
    if table is not None:
        s = s + table[:, buckets_of(p, at, keys)]
    if p.causal is not None:
        s = s.masked_fill(torch.arange(keys)[None, :] > at[:, None], -torch.inf)
    return s


class Relative(torch.autograd.Function):
    """O and the natural LSE, and the gradients of q, k, v and the table."""

    @staticmethod
    def forward(ctx, q, k, v, table, p):
        """A sequence and a chunk of rows at a time."""
        group, rows = q.shape[1] // k.shape[1], q.shape[2]
        o = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
        lse = torch.full(q.shape[:3], -torch.inf)
        for b, n in enumerate(lengths_of(p).tolist()):
            wide_k, wide_v = (x[b, :, :n].float().repeat_interleave(group, 0) for x in (k, v))
            for start in range(0, rows if n else 0, CHUNK):
                part = slice(start, min(start + CHUNK, rows))
                at = places(p, torch.arange(part.start, part.stop), n)
                s = logits(p, q[b, :, part].float(), wide_k, at, table)
                m = s.amax(-1, keepdim=True)
                m = torch.where(m == -torch.inf, 0.0, m)
                weights = torch.exp(s - m)
                total = weights.sum(-1, keepdim=True)
                divisor = torch.where(total == 0, 1.0, total)
                o[b, :, part] = (weights @ wide_v / divisor).to(q.dtype)
                lse[b, :, part] = (m + torch.log(total))[..., 0]
        ctx.save_for_backward(q, k, v, table, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned."""
        (q, k, v, table, o, lse), p = ctx.saved_tensors, ctx.p
        group, rows = q.shape[1] // k.shape[1], q.shape[2]
        dq, dk, dv = (torch.zeros(x.shape) for x in (q, k, v))
        dtable = None if table is None else torch.zeros(table.shape, dtype=torch.float64)
        delta = (o.float() * do.float()).sum(-1)
        if dlse is not None:
            delta = delta - dlse
        pivot = torch.where(lse == -torch.inf, 0.0, lse)
        for b, n in enumerate(lengths_of(p).tolist()):
            wide_k, wide_v = (x[b, :, :n].float().repeat_interleave(group, 0) for x in (k, v))
            for start in range(0, rows if n else 0, CHUNK):
                part = slice(start, min(start + CHUNK, rows))
                at = places(p, torch.arange(part.start, part.stop), n)
                x, dx = q[b, :, part].float(), do[b, :, part].float()
                weights = torch.exp(logits(p, x, wide_k, at, table) - pivot[b, :, part, None])
                ds = weights * (dx @ wide_v.mT - delta[b, :, part, None])
                dq[b, :, part] = ds @ wide_k * p.scale
                dk[b, :, :n] += (ds.mT @ x * p.scale).unflatten(0, (-1, group)).sum(1)
                dv[b, :, :n] += (weights.mT @ dx).unflatten(0, (-1, group)).sum(1)
                if dtable is not None:
                    dtable.index_add_(1, buckets_of(p, at, n).flatten(), ds.double().flatten(1))
        dtable = None if dtable is None else dtable.float()
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dtable, None


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("relative_bias",),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=True, gradients=frozenset({"dq", "dk", "dv", "drelative_bias"})),
    device="cpu",
)
def relative(p):
    """The adapter."""
    return Relative.apply(p.q, p.k, p.v, p.relative_bias, p)


SUBJECT = relative

"""Attention that scans the keys chunk by chunk, forward and backward by hand, in plain torch, written for this set: fp64, rounded once.

It takes causal masks of both alignments, key lengths and a bias.
"""

import torch

from flashverify import Contract, Supports, subject


def lengths_of(p):
    """`[B, 1, 1, 1]`: the keys of each sequence."""
    n = torch.full((p.q.shape[0],), p.k.shape[2]) if p.key_lengths is None else p.key_lengths.long()
    return n[:, None, None, None]


def reach(p, n):
    """No row sees this key or one after it."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    if p.causal is None or not keys:
        return keys
    return max(min(rows + (int((n - rows).max()) if p.causal == "bottom-right" else 0), keys), 0)


def scores(p, q, k, bias, n, start, stop):
    """Logits of the keys from `start` to `stop`, `[B, Hq, Sq, stop - start]`, -inf where a row sees none."""
    rows = q.shape[2]
    j = torch.arange(start, stop)
    see = j < n
    if p.causal is not None:
        see = see & (j <= torch.arange(rows)[:, None] + (n - rows if p.causal == "bottom-right" else 0 * n))
    s = q @ k[:, :, start:stop].mT * p.scale
    if bias is not None:
        s = s + bias[..., start:stop].double()
    return torch.where(see, s, -torch.inf)


def wide(x, n, group):
    """The heads of the queries, fp64; 0 behind the keys of a sequence."""
    return torch.where(torch.arange(x.shape[2])[:, None] < n, x.double(), 0.0).repeat_interleave(group, 1)


def narrow(x, group, dtype):
    """The sum over the query heads of each kv head."""
    return x.unflatten(1, (-1, group)).sum(2).to(dtype)


class Scan(torch.autograd.Function):
    """O and the natural LSE, and the gradients of q, k, v and the bias."""

    @staticmethod
    def forward(ctx, q, k, v, bias, p):
        """The running maximum, sum and product of each row."""
        n, group = lengths_of(p), q.shape[1] // k.shape[1]
        x, kw, vw = q.double(), wide(k, n, group), wide(v, n, group)
        m = torch.full((*q.shape[:3], 1), -torch.inf, dtype=torch.float64)
        total, acc = torch.zeros_like(m), torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
        end, chunk = reach(p, n), dict(p.case.launch or ()).get("chunk", 32)
        for start in range(0, end, chunk):
            stop = min(start + chunk, end)
            s = scores(p, x, kw, bias, n, start, stop)
            m_new = torch.maximum(m, s.amax(-1, keepdim=True))
            pivot = torch.where(m_new == -torch.inf, 0.0, m_new)
            weights, alpha = torch.exp(s - pivot), torch.exp(m - pivot)
            total = total * alpha + weights.sum(-1, keepdim=True)
            acc = acc * alpha + weights @ vw[:, :, start:stop]
            m = m_new
        divisor = torch.where(total == 0, 1.0, total)
        o, lse = acc / divisor, m + torch.log(divisor)
        ctx.save_for_backward(q, k, v, bias, o, lse)
        ctx.p = p
        return o.to(q.dtype), lse[..., 0].float()

    @staticmethod
    def backward(ctx, do, dlse):
        """The same chunks once more."""
        (q, k, v, bias, o, lse), p = ctx.saved_tensors, ctx.p
        n, group = lengths_of(p), q.shape[1] // k.shape[1]
        x, kw, vw, dx = q.double(), wide(k, n, group), wide(v, n, group), do.double()
        dq, dk, dv = (torch.zeros_like(y) for y in (x, kw, vw))
        dbias = None if bias is None else torch.zeros(bias.shape, dtype=torch.float64)
        empty = lse == -torch.inf
        delta = (o * dx).sum(-1, keepdim=True)
        if dlse is not None:
            delta = delta - torch.where(empty[..., 0], 0.0, dlse.double())[..., None]
        end, chunk = reach(p, n), dict(p.case.launch or ()).get("chunk", 32)
        for number in range(-(-end // chunk)):
            part = slice(number * chunk, min((number + 1) * chunk, end))
            s = scores(p, x, kw, bias, n, part.start, part.stop)
            weights = torch.exp(s - torch.where(empty, 0.0, lse))
            ds = weights * (dx @ vw[:, :, part].mT - delta)
            dq += ds @ kw[:, :, part] * p.scale
            dk[:, :, part] = ds.mT @ x * p.scale
            dv[:, :, part] = weights.mT @ dx
            if dbias is not None:
                shared = [axis for axis in (0, 1) if bias.shape[axis] == 1]
                dbias[..., part] = ds.sum(shared, keepdim=True) if shared else ds
        dk, dv = narrow(dk, group, k.dtype), narrow(dv, group, v.dtype)
        return dq.to(q.dtype), dk, dv, None if bias is None else dbias.to(bias.dtype), None


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("bias",),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
        launch=(("chunk", (32, 16, 48)),),
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    device="cpu",
)
def scan(p):
    """The adapter."""
    return Scan.apply(p.q, p.k, p.v, p.bias, p)


SUBJECT = scan

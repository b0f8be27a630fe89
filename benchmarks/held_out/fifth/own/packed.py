"""Attention of packed sequences in plain torch with a backward by hand, written for this set: sequence by sequence, keys in blocks of 32."""

from itertools import pairwise

import torch

from flashverify import Contract, Supports, subject

BLOCK = 32
_MASKS = {}


def sequences(p):
    """Rows and keys of each sequence in the buffers, as slices."""
    limits = zip(pairwise(p.cu_q.tolist()), pairwise(p.cu_k.tolist()), strict=True)
    return [(slice(*rows), slice(*keys)) for rows, keys in limits]


def mask_of(p, rows, keys):
    """`[rows, keys]` bool: which key a row of a sequence of these lengths sees; made once and kept."""
    key = (rows, keys, p.causal, p.window, p.window_alignment)
    if key not in _MASKS:
        alignment = p.causal if p.window is None else p.window_alignment
        at = torch.arange(rows)[:, None] + (keys - rows if alignment == "bottom-right" else 0)
        j = torch.arange(keys)[None, :]
        left, right = p.window or (None, None)
        right = 0 if p.causal is not None else right
        see = torch.ones(rows, keys, dtype=torch.bool)
        see &= True if left is None else j >= at - left
        see &= True if right is None else j <= at + right
        _MASKS[key] = see
    return _MASKS[key]


def wide(x, keys, group):
    """The keys of a sequence in fp32, one head for each query head, `[Hq, keys, channels]`."""
    return x[0, :, keys].float().repeat_interleave(group, 0)


def of_group(x, group):
    """The sum over the query heads of each kv head."""
    return x.unflatten(0, (-1, group)).sum(1)


class Packed(torch.autograd.Function):
    """O and the natural LSE of packed sequences, and the gradients from both."""

    @staticmethod
    def forward(ctx, q, k, v, sink, p):
        """Blocks of keys, by the online softmax; a sink joins at the end in rows that see a key."""
        group = q.shape[1] // k.shape[1]
        o = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
        lse = torch.full(q.shape[:3], -torch.inf)
        for rows, keys in sequences(p):
            x, wide_k, wide_v = q[0, :, rows].float(), wide(k, keys, group), wide(v, keys, group)
            see = mask_of(p, x.shape[1], wide_k.shape[1])
            m = torch.full(x.shape[:2], -torch.inf)
            total, acc = torch.zeros(x.shape[:2]), torch.zeros(*x.shape[:2], v.shape[3])
            for start in range(0, wide_k.shape[1], BLOCK):
                part = slice(start, start + BLOCK)
                s = (x @ wide_k[:, part].mT * p.scale).masked_fill(~see[:, part], -torch.inf)
                m_new = torch.maximum(m, s.amax(-1))
                pivot = torch.where(m_new == -torch.inf, 0.0, m_new)
                weights, alpha = torch.exp(s - pivot[..., None]), torch.exp(m - pivot)
                total = total * alpha + weights.sum(-1)
                acc = acc * alpha[..., None] + weights @ wide_v[:, part]
                m = m_new
            if sink is not None:
                some = total > 0
                pivot = torch.where(some, torch.maximum(m, sink[:, None]), 0.0)
                alpha = torch.exp(m - pivot)
                acc = acc * alpha[..., None]
                total = torch.where(some, total * alpha + torch.exp(sink[:, None] - pivot), 0.0)
                m = torch.where(some, pivot, m)
            divisor = torch.where(total == 0, 1.0, total)
            o[0, :, rows] = (acc / divisor[..., None]).to(q.dtype)
            lse[0, :, rows] = m + torch.log(divisor)
        ctx.save_for_backward(q, k, v, sink, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned."""
        (q, k, v, sink, o, lse), p = ctx.saved_tensors, ctx.p
        group = q.shape[1] // k.shape[1]
        dq, dk, dv = (torch.zeros(x.shape) for x in (q, k, v))
        dsink = None if sink is None else torch.zeros(sink.shape, dtype=torch.float64)
        delta = (o.float() * do.float()).sum(-1)
        if dlse is not None:
            delta = delta - dlse
        for rows, keys in sequences(p):
            x, dx = q[0, :, rows].float(), do[0, :, rows].float()
            wide_k, wide_v = wide(k, keys, group), wide(v, keys, group)
            see = mask_of(p, x.shape[1], wide_k.shape[1])
            some = lse[0, :, rows] != -torch.inf
            pivot = torch.where(some, lse[0, :, rows], 0.0)
            for start in range(0, wide_k.shape[1], BLOCK):
                part = slice(start, start + BLOCK)
                place = slice(keys.start + start, min(keys.start + start + BLOCK, keys.stop))
                shown = see[:, part]
                s = x @ wide_k[:, part].mT * p.scale
                weights = torch.where(shown, torch.exp(s - pivot[..., None]), 0.0)
                ds = weights * (dx @ wide_v[:, part].mT - delta[0, :, rows, None])
                dq[0, :, rows] += ds @ wide_k[:, part] * p.scale
                dk[0, :, place] += of_group(ds.mT @ x * p.scale, group)
                dv[0, :, place] += of_group(weights.mT @ dx, group)
            if dsink is not None:
                share = torch.exp(sink.double()[:, None] - torch.where(some, pivot, torch.inf))
                dsink -= (share * delta[0, :, rows]).sum(-1)
        dsink = None if dsink is None else dsink.float()
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dsink, None


@subject(
    supports=Supports(
        masks=("causal", "window", "packed"),
        required_masks=("packed",),
        window_alignments=("top-left", "bottom-right"),
        logits=("sink",),
        dlse=True,
        strided=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=True, padding="undefined", gradients=frozenset({"dq", "dk", "dv", "dsink"})),
    device="cpu",
)
def packed(p):
    """The adapter."""
    return Packed.apply(p.q, p.k, p.v, p.sink, p)


SUBJECT = packed

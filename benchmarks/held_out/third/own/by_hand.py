"""Attention in plain torch with a backward by hand, written for this set: keys in chunks of 16, everything in fp32, rounded once."""

import torch

from flashverify import Contract, Supports, subject

CHUNK = 16
_SHIFTS = {}


def visible(p, *, window=True):
    """`[B, 1, Sq, Sk]` bool; without the window where `window` is False."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    i, j = torch.arange(rows)[:, None], torch.arange(keys)[None, :]
    n = torch.full((p.q.shape[0],), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None]
    at = i + shift_of(p, n)
    see = j < n
    if p.causal is not None:
        see = see & (j <= at)
    if window and p.window is not None:
        left, right = p.window
        see = see & ((j >= at - left) if left is not None else see) & ((j <= at + right) if right is not None else see)
    return see[:, None]


def shift_of(p, n):
    """How far the diagonal is moved to end at the last key."""
    alignment = p.causal if p.window is None else p.window_alignment
    return n - p.q.shape[2] if alignment == "bottom-right" else 0 * n


def cap_of(s, cap):
    """The capped logits."""
    return s if cap is None else cap * torch.tanh(s / cap)


def terms(s, p, see):
    """The logits of scaled products, -inf where the mask hides the key."""
    s = cap_of(s, p.softcap)
    if p.slopes is not None:
        rows, keys = s.shape[2:]
        n = torch.full((s.shape[0],), keys) if p.key_lengths is None else p.key_lengths.long()
        at = torch.arange(rows)[:, None] + shift_of(p, n[:, None, None])
        s = s - p.slopes[None, :, None, None] * (at - torch.arange(keys)).abs()[:, None]
    return s.masked_fill(~see, -torch.inf)


def over_group(x, group):
    """From kv heads to query heads."""
    return x.repeat_interleave(group, 1)


def of_group(x, group):
    """The sum over the query heads of each kv head."""
    batch, heads, *rest = x.shape
    return x.reshape(batch, heads // group, group, *rest).sum(2)


class ByHand(torch.autograd.Function):
    """O and the natural LSE of a problem, and its gradients from both."""

    @staticmethod
    def forward(ctx, q, k, v, p):
        """Keys in chunks, by the online softmax."""
        group, see = q.shape[1] // k.shape[1], visible(p)
        wide_q, wide_k, wide_v = q.float(), over_group(k.float(), group), over_group(v.float(), group)
        s = terms(wide_q @ wide_k.mT * p.scale, p, see)
        m = torch.full(s.shape[:3], -torch.inf)
        total = torch.zeros(s.shape[:3])
        acc = torch.zeros(*s.shape[:3], v.shape[3])
        for start in range(0, s.shape[3], CHUNK):
            part = s[..., start : start + CHUNK]
            m_new = torch.maximum(m, part.amax(-1))
            pivot = torch.where(m_new == -torch.inf, 0.0, m_new)
            weights = torch.exp(part - pivot[..., None])
            alpha = torch.exp(m - pivot)
            total = total * alpha + weights.sum(-1)
            values = torch.where(
                see[..., start : start + CHUNK].any(2)[..., None], wide_v[:, :, start : start + CHUNK], 0.0
            )
            seen = torch.where(see[..., start : start + CHUNK], weights, 0.0)
            acc = acc * alpha[..., None] + seen @ values
            m = m_new
        if p.sink is not None:
            sink = p.sink[None, :, None]
            m_new = torch.where(total == 0, m, torch.maximum(m, sink))
            pivot = torch.where(total == 0, 0.0, m_new)
            alpha = torch.exp(m - pivot)
            acc = acc * alpha[..., None]
            total = torch.where(total == 0, 0.0, total * alpha + torch.exp(sink - pivot))
            m = m_new
        divisor = torch.where(total == 0, 1.0, total)
        o, lse = (acc / divisor[..., None]).to(q.dtype), m + torch.log(divisor)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.p = p
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        """From the O and the LSE that the forward returned."""
        (q, k, v, o, lse), p = ctx.saved_tensors, ctx.p
        group, see = q.shape[1] // k.shape[1], visible(p)
        scale = p.scale
        wide_q, wide_k, wide_v = q.float(), over_group(k.float(), group), over_group(v.float(), group)
        shown = see.any(2)[..., None]
        wide_k, wide_v = torch.where(shown, wide_k, 0.0), torch.where(shown, wide_v, 0.0)
        dot = wide_q @ wide_k.mT * scale
        pivot = torch.where(lse == -torch.inf, 0.0, lse)
        weights = torch.exp(terms(dot, p, see) - pivot[..., None])
        delta = (o.float() * do.float()).sum(-1)
        if dlse is not None:
            delta = delta - dlse
        ds = weights * (do.float() @ wide_v.mT - delta[..., None])
        ds = torch.where(see, ds, 0.0)
        if p.softcap is not None:
            ds = ds / torch.cosh(dot / p.softcap) ** 2
        dq = ds @ wide_k * scale
        dk = of_group(ds.mT @ wide_q * scale, group)
        dv = of_group(weights.mT @ do.float(), group)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        window_alignments=("top-left", "bottom-right"),
        logits=("softcap", "alibi", "sink"),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
        wild_slopes=False,
    ),
    contract=Contract(reads_outputs=True),
    device="cpu",
)
def by_hand(p):
    """The adapter."""
    return ByHand.apply(p.q, p.k, p.v, p)


SUBJECT = by_hand

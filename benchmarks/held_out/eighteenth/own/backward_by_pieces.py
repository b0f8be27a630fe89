"""Attention with softcap and bias in plain torch whose backward is written by hand, written for this set: fp64, and pieces of 24 rows.

The forward sees all rows at once and keeps O and the maxima and sums of rows in fp64; the backward computes the weights of one piece of rows after the other from them. It
takes groups of heads, a bias that sequences and heads may share, softcap, causal masks of both alignments and key lengths.
"""

import torch

from flashverify import Contract, Forward, Supports, subject

PIECE = 24
"""Rows of a piece."""


def wide(p):
    """q, k and v in fp64, `[B, Hkv, group, S, D]` with a group of 1 of k and v; hidden keys are 0."""
    (batch, heads, rows, d), kv_heads = p.q.shape, p.k.shape[1]
    k, v = (x.double()[:, :, None] for x in (p.k, p.v))
    if p.key_lengths is not None:
        there = (torch.arange(p.k.shape[2]) < p.key_lengths[:, None])[:, None, None, :, None]
        k, v = (torch.where(there, x, 0.0) for x in (k, v))
    return p.q.double().reshape(batch, kv_heads, heads // kv_heads, rows, d), k, v


def scores(p, q, k, rows):
    """The logits of the rows numbered `rows`, -inf at keys that they do not see, and the slope of the cap."""
    s, slope = q @ k.mT * p.scale, 1.0
    cap = p.case.logits.softcap
    if cap is not None:
        s = torch.tanh(s / cap)
        slope = 1 - s * s
        s = s * cap
    if p.bias is not None:
        bias = p.bias[:, :, rows].double()
        s = s + bias.expand(-1, p.q.shape[1], -1, -1).unflatten(1, s.shape[1:3])
    j, i = torch.arange(p.k.shape[2]), rows[:, None]
    n = torch.full((len(q),), len(j)) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None, None]
    see = j < n
    if p.causal is not None:
        see = see & (j <= i + (n - p.q.shape[2] if p.causal == "bottom-right" else 0))
    return s.masked_fill(~see, -torch.inf), slope


def gradients(p, found):
    """The gradients of q, k, v and the bias."""
    (q, k, v), (o, pivot, total) = wide(p), found.saved
    do = p.do.double().reshape(o.shape)
    delta = (o * do).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse.double().reshape(delta.shape)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    dq, dbias = [], None if p.bias is None else torch.zeros(p.bias.shape, dtype=torch.float64)
    for number, (piece, gradient) in enumerate(zip(q.split(PIECE, 3), do.split(PIECE, 3), strict=True)):
        at = number * PIECE + torch.arange(piece.shape[3])
        s, slope = scores(p, piece, k, at)
        weights = torch.exp(s - pivot[..., at, None]) / total[..., at, None]
        dv += (weights.mT @ gradient).sum(2, keepdim=True)
        ds = weights * (gradient @ v.mT - delta[..., at, None])
        if dbias is not None:
            dbias[:, :, at] += ds.flatten(1, 2).sum_to_size(*p.bias.shape[:2], *ds.shape[3:])
        ds = ds * slope * p.scale
        dq.append(ds @ k)
        dk += (ds.mT @ piece).sum(2, keepdim=True)
    given = {
        "dq": torch.cat(dq, 3).reshape(p.q.shape).to(p.q.dtype),
        "dk": dk[:, :, 0].to(p.q.dtype),
        "dv": dv[:, :, 0].to(p.q.dtype),
    }
    return given if dbias is None else given | {"dbias": dbias.to(p.bias.dtype)}


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("softcap", "bias"),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv", "dbias"}), reads_outputs=False),
    backward=gradients,
    device="cpu",
)
def backward_by_pieces(p):
    """O and the natural LSE."""
    q, k, v = wide(p)
    s, _ = scores(p, q, k, torch.arange(p.q.shape[2]))
    lse = torch.logsumexp(s, -1)
    pivot = torch.where(lse == -torch.inf, 0.0, s.amax(-1))  # weights of rows without keys are 0
    total = torch.exp(s - pivot[..., None]).sum(-1).clamp(min=1.0)
    o = torch.exp(s - pivot[..., None]) / total[..., None] @ v
    flat = o.flatten(1, 2)
    return Forward(flat.to(p.q.dtype), lse.flatten(1, 2).float(), (o, pivot, total))


SUBJECT = backward_by_pieces

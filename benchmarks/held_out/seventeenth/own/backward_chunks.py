"""Attention by chunks of rows in plain torch with a backward written by hand, written for this set: fp64, rounded once.

The backward computes the logits of a chunk again from q and k, and adds what the chunk gives to dK and dV. It takes groups of heads, causal masks
of both alignments, key lengths, a softcap and a bias that sequences or heads may share.
"""

import torch

from flashverify import Contract, Forward, Supports, subject

ROWS = 24


def capped(p, q, k):
    """The scaled products of a chunk after the softcap."""
    s = q @ k.mT * p.scale
    return s if p.softcap is None else p.softcap * torch.tanh(s / p.softcap)


def hidden(p, first, rows):
    """Which keys the rows of a chunk do not see, `[B or 1, 1, rows, keys]`."""
    j = torch.arange(p.k.shape[2])
    lengths = torch.tensor([p.k.shape[2]]) if p.key_lengths is None else p.key_lengths.long()
    lengths = lengths[:, None, None, None]
    out = (j >= lengths).expand(-1, 1, rows, -1)
    if p.causal is not None:
        shift = lengths - p.q.shape[2] if p.causal == "bottom-right" else 0
        out = out | (j > torch.arange(first, first + rows)[:, None] + shift)
    return out


def inputs(p):
    """Q, k and v in fp64, a head of k and v for every query head; keys that do not count are 0."""
    q, k, v = (x.double() for x in (p.q, p.k, p.v))
    if p.key_lengths is not None:
        counts = (torch.arange(k.shape[2]) < p.key_lengths[:, None])[:, None, :, None]
        k, v = (torch.where(counts, x, 0.0) for x in (k, v))
    group = q.shape[1] // k.shape[1]
    return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)


def gradients(p, found):
    """The gradients of q, k, v and the bias from the LSE that the forward kept in fp64."""
    q, k, v = inputs(p)
    do, lse = p.do.double(), found.saved
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dbias = None if p.bias is None else torch.zeros(p.bias.shape, dtype=torch.float64)
    for first in range(0, q.shape[2], ROWS):
        chunk = slice(first, min(first + ROWS, q.shape[2]))
        dot = capped(p, q[:, :, chunk], k)
        s = dot if p.bias is None else dot + p.bias[:, :, chunk].double()
        away = hidden(p, first, s.shape[2])
        weight = torch.exp(s - lse[:, :, chunk, None]).masked_fill(away, 0.0)
        weight = weight.masked_fill(lse[:, :, chunk, None] == -torch.inf, 0.0)
        dp = do[:, :, chunk] @ v.mT
        delta = (weight * dp).sum(-1, keepdim=True)
        if p.dlse is not None:
            delta = delta - p.dlse[:, :, chunk, None].double()
        ds = weight * (dp - delta)
        if dbias is not None:
            shared = [axis for axis in (0, 1) if dbias.shape[axis] == 1]
            dbias[:, :, chunk] = ds.sum(shared, keepdim=True) if shared else ds
        if p.softcap is not None:
            ds = ds * (1 - (dot / p.softcap) ** 2)
        dq[:, :, chunk] = ds @ k * p.scale
        dk += ds.mT @ q[:, :, chunk] * p.scale
        dv += weight.mT @ do[:, :, chunk]
    dk, dv = (x.unflatten(1, (p.k.shape[1], -1)).sum(2) for x in (dk, dv))
    result = {name: x.to(p.q.dtype) for name, x in (("dq", dq), ("dk", dk), ("dv", dv))}
    return result if dbias is None else result | {"dbias": dbias.to(p.bias.dtype)}


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("softcap", "bias"),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=False, gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    backward=gradients,
    device="cpu",
)
def chunks(p):
    """O and the natural LSE."""
    q, k, v = inputs(p)
    outputs, sums = [], []
    for first in range(0, q.shape[2], ROWS):
        chunk = slice(first, min(first + ROWS, q.shape[2]))
        s = capped(p, q[:, :, chunk], k)
        if p.bias is not None:
            s = s + p.bias[:, :, chunk].double()
        s = s.masked_fill(hidden(p, first, s.shape[2]), -torch.inf)
        empty = (s == -torch.inf).all(-1, keepdim=True)
        s = torch.where(empty, 0.0, s)
        outputs.append(torch.where(empty, 0.0, torch.softmax(s, -1)) @ v)
        sums.append(torch.where(empty, -torch.inf, torch.logsumexp(s, -1, keepdim=True))[..., 0])
    lse = torch.cat(sums, 2)
    return Forward(torch.cat(outputs, 2).to(p.q.dtype), lse.float(), lse)


SUBJECT = chunks

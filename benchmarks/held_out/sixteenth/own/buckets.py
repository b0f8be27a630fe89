"""Attention of packed sequences by buckets of equal lengths, in plain torch, differentiated by autograd, written for this set: fp64, rounded once.

Sequences of as many rows and keys make one dense batch; the rows of all batches then go back to where they came from. It takes groups of heads,
causal masks of both alignments, a softcap and ALiBi.
"""

import torch

from flashverify import Contract, Supports, subject


def buckets_of(cu_q, cu_k):
    """The numbers of the sequences by their numbers of rows and keys."""
    lengths = zip(cu_q.diff().tolist(), cu_k.diff().tolist(), strict=True)
    found = {}
    for number, (rows, keys) in enumerate(lengths):
        found.setdefault((rows, keys), []).append(number)
    return found


def gathered(x, starts, length):
    """The rows of some sequences of a buffer `[H, tokens, D]`, `[sequences, H, length, D]`, and where they lie."""
    at = starts[:, None] + torch.arange(length)
    return x[:, at].transpose(0, 1), at


def attend(q, k, v, p):
    """O and the natural LSE of a dense batch."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    rows, keys = q.shape[2], k.shape[2]
    s = q @ k.mT * p.scale
    if p.softcap is not None:
        s = p.softcap * torch.tanh(s / p.softcap)
    place = torch.arange(rows)[:, None] + (keys - rows if p.causal == "bottom-right" else 0)
    distance = torch.arange(keys) - place
    if p.slopes is not None:
        s = s - p.slopes.double()[:, None, None] * distance.abs()
    if p.causal is not None:
        s = s.masked_fill(distance > 0, -torch.inf)
    empty = (s == -torch.inf).all(-1, keepdim=True)
    s = torch.where(empty, 0.0, s)
    lse = torch.logsumexp(s, -1, keepdim=True) if keys else s.sum(-1, keepdim=True)
    return torch.where(empty, 0.0, torch.softmax(s, -1)) @ v, torch.where(empty, -torch.inf, lse)


@subject(
    supports=Supports(
        masks=("causal", "packed"),
        required_masks=("packed",),
        logits=("softcap", "alibi"),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(padding="undefined", reads_outputs=False),
    device="cpu",
)
def buckets(p):
    """O and the natural LSE."""
    q, k, v = (x[0].double() for x in (p.q, p.k, p.v))
    starts, key_starts = p.cu_q[:-1].long(), p.cu_k[:-1].long()
    outputs, places = [], []
    for (rows, keys), numbers in buckets_of(p.cu_q, p.cu_k).items():
        batch_q, at = gathered(q, starts[numbers], rows)
        batch_k, batch_v = (gathered(x, key_starts[numbers], keys)[0] for x in (k, v))
        o, lse = attend(batch_q, batch_k, batch_v, p)
        outputs.append(torch.cat([o, lse], -1).transpose(0, 1).flatten(1, 2))
        places.append(at.flatten())
    order = torch.cat(places).argsort()
    tail = torch.zeros(q.shape[0], q.shape[1] - len(order), v.shape[2] + 1, dtype=torch.float64)
    found = torch.cat([torch.cat(outputs, 1)[:, order], tail], 1)[None]
    return found[..., :-1].to(p.q.dtype), found[..., -1].float()


SUBJECT = buckets

"""Attention whose heads are dealt out to ranks, as of tensor parallelism, in plain torch, differentiated by autograd, written for this set.

Each rank has some of the query heads, takes the kv head of each, and computes them in fp64. It takes causal masks, key lengths, a softcap and ALiBi.
"""

from itertools import pairwise

import torch

from flashverify import Contract, Supports, subject


def cuts_of(heads, ranks):
    """`[ranks + 1]`: where the query heads of each rank begin."""
    return [heads * rank // ranks for rank in range(ranks + 1)]


def ends_of(p):
    """`[B, 1, 1, 1]`: the keys of each sequence."""
    n = torch.full((p.q.shape[0],), p.k.shape[2]) if p.key_lengths is None else p.key_lengths.long()
    return n[:, None, None, None]


def shown(p):
    """`[B, 1, Sq, Sk]` bool, and where each row stands among the keys."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    n = ends_of(p)
    at = torch.arange(rows)[:, None] + (n - rows if p.causal == "bottom-right" else 0 * n)
    see = (torch.arange(keys) < n).expand(-1, -1, rows, -1)
    return (see if p.causal is None else see & (torch.arange(keys) <= at)), at


def heads_of(q, k, v, slopes, see, at, p):
    """O and the natural LSE of the heads of a rank; k and v have as many, in fp64, so that gradients of a kv head are added before they are rounded."""
    counts = torch.arange(k.shape[2])[:, None] < ends_of(p)
    k, v = (torch.where(counts, x, 0.0) for x in (k, v))
    s = q.double() @ k.mT * p.scale
    if p.softcap is not None:
        s = p.softcap * torch.tanh(s / p.softcap)
    if slopes is not None:
        s = s - slopes.double()[:, None, None] * (at - torch.arange(k.shape[2])).abs()
    s = s.masked_fill(~see, -torch.inf)
    empty = ~see.any(-1, keepdim=True)
    s = torch.where(empty, 0.0, s)
    weights = torch.where(empty, 0.0, torch.softmax(s, -1))
    return weights @ v, torch.where(empty, -torch.inf, torch.logsumexp(s, -1, keepdim=True))[..., 0]


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("softcap", "alibi"),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
        launch=(("ranks", (2, 1, 3)),),
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv"})),
    device="cpu",
)
def ranks(p):
    """O and the natural LSE, gathered from all ranks."""
    heads, group = p.q.shape[1], p.q.shape[1] // p.k.shape[1]
    see, at = shown(p)
    o = torch.zeros(*p.q.shape[:3], p.v.shape[3], dtype=torch.float64)
    lse = torch.zeros(p.q.shape[:3], dtype=torch.float64)
    cuts = cuts_of(heads, dict(p.case.launch or ()).get("ranks", 2))
    for first, last in pairwise(cuts):
        mine = slice(first, last)
        slopes = None if p.slopes is None else p.slopes[mine]
        k, v = (x.double()[:, torch.arange(first, last) // group] for x in (p.k, p.v))
        o[:, mine], lse[:, mine] = heads_of(p.q[:, mine], k, v, slopes, see, at, p)
    return o.to(p.q.dtype), lse.float()


SUBJECT = ranks

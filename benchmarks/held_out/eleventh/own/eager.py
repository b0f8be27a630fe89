"""Attention as a matrix of logits in plain torch, differentiated by autograd, written for this set: fp64, rounded once.

It takes causal masks, windows, key lengths, a softcap and a bias.
"""

import torch

from flashverify import Contract, Supports, subject


def shown(p):
    """`[B, 1, Sq, Sk]`: which keys each row sees; `[B, 1, Sk, 1]`: which keys count."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    n = torch.full((p.q.shape[0],), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None]
    j = torch.arange(keys)
    at = torch.arange(rows)[:, None] + (n - rows if p.causal == "bottom-right" else 0 * n)
    counts = j < n
    see = counts.expand(-1, -1, rows, -1)
    left, right = p.window or (None, None)
    if p.causal is not None:
        right = 0
    if left is not None:
        see = see & (j >= at - left)
    if right is not None:
        see = see & (j <= at + right)
    return see, counts.mT


def logits(p, k):
    """`[B, Hq, Sq, Sk]`, hidden keys and all."""
    s = p.q.double() @ k.mT * p.scale
    if p.softcap is not None:
        s = p.softcap * torch.tanh(s / p.softcap)
    if p.bias is not None:
        s = s + p.bias.double()
    return s


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        logits=("softcap", "bias"),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    device="cpu",
)
def eager(p):
    """O and the natural LSE."""
    group = p.q.shape[1] // p.k.shape[1]
    see, counts = shown(p)
    k, v = (torch.where(counts, x.double(), 0.0).repeat_interleave(group, 1) for x in (p.k, p.v))
    s = logits(p, k).masked_fill(~see, -torch.inf)
    m = s.detach().amax(-1, keepdim=True)
    pivot = torch.where(m == -torch.inf, 0.0, m)
    weights = torch.exp(s - pivot)
    total = weights.sum(-1, keepdim=True)
    divisor = torch.where(total == 0, 1.0, total)
    lse = torch.where(total == 0, -torch.inf, pivot + torch.log(divisor))
    return (weights / divisor @ v).to(p.q.dtype), lse[..., 0].float()


SUBJECT = eager

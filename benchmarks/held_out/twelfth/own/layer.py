"""Attention as a layer of a model writes it, in plain torch, differentiated by autograd, written for this set: fp64, rounded once.

It takes causal masks, windows, key lengths, prefixes, ALiBi and a bias.
"""

import torch

from flashverify import Contract, Supports, subject


def expand(x, group):
    """`[B, Hq, S, D]` of `[B, Hkv, S, D]`, in fp64."""
    return x.double()[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)


def allowed(p):
    """`[B, 1, Sq, Sk]` each: which keys each row sees, and how far they lie from its place; `[B, 1, Sk, 1]`: which keys count."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    n = torch.full((p.q.shape[0],), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None]
    shift = n - rows if p.causal == "bottom-right" else 0 * n
    distance = torch.arange(keys) - torch.arange(rows)[:, None] - shift
    left, right = p.window or (None, None)
    right = right if p.causal is None else 0
    see = torch.ones_like(distance, dtype=torch.bool)
    if right is not None:
        see = see & (distance <= right)
    if p.prefix_lengths is not None:
        see = see | (torch.arange(keys) < p.prefix_lengths.long()[:, None, None, None])
    if left is not None:
        see = see & (distance >= -left)
    counts = torch.arange(keys) < n
    return see & counts, distance, counts.mT


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths", "prefix_lengths"),
        logits=("alibi", "bias"),
        wild_slopes=False,
        scales=("default", "positive", "negative", "zero"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    device="cpu",
)
def layer(p):
    """O and the natural LSE."""
    group = p.q.shape[1] // p.k.shape[1]
    see, distance, counts = allowed(p)
    k, v = (torch.where(counts, expand(x, group), 0.0) for x in (p.k, p.v))
    scores = p.q.double() @ k.mT
    scores = scores * p.scale
    if p.slopes is not None:
        scores = scores - p.slopes.double()[:, None, None] * distance.abs()
    if p.bias is not None:
        scores = scores + p.bias.double()
    scores = scores.masked_fill(~see, -torch.inf)
    largest = scores.detach().amax(-1, keepdim=True)
    pivot = torch.where(largest == -torch.inf, 0.0, largest)
    weights = torch.exp(scores - pivot)
    total = weights.sum(-1, keepdim=True)
    empty = total == 0
    divisor = torch.where(empty, 1.0, total)
    lse = torch.where(empty, -torch.inf, pivot + torch.log(divisor))
    return (weights / divisor @ v).to(p.q.dtype), lse[..., 0].float()


SUBJECT = layer

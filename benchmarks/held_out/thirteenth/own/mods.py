"""Attention as FlexAttention describes it, in plain torch, differentiated by autograd, written for this set: fp64, rounded once.

What a pair sees and scores are functions of the numbers of its row and key. It takes causal masks, windows, key lengths, a bitmap and ALiBi.
"""

import torch

from flashverify import Contract, Supports, subject


def mask_mods(p, n, at, j):
    """What a visible pair of the row's place `at` and the key `j` fulfils, each `[B or 1, H or 1, Sq or 1, Sk]`."""
    left, right = p.window or (None, None)
    mods = [j < n]
    if p.causal is not None:
        mods.append(j <= at)
    elif right is not None:
        mods.append(j <= at + right)
    if left is not None:
        mods.append(j >= at - left)
    if p.bitmap is not None:
        mods.append(p.bitmap)
    return mods


def score_mod(p, score, at, j):
    """The score of a pair from its scaled product."""
    if p.slopes is not None:
        score = score - p.slopes.double()[:, None, None] * (at - j).abs()
    return score


def seen(p, n, at, j):
    """`[B or 1, H or 1, Sq, Sk]`: whether all of the mask is fulfilled."""
    see = torch.ones_like(at - j, dtype=torch.bool)
    for mod in mask_mods(p, n, at, j):
        see = see & mod
    return see


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths", "bitmap"),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(gradients=frozenset({"dq", "dk", "dv"})),
    device="cpu",
)
def mods(p):
    """O and the natural LSE."""
    (batch, heads, rows, _), (kv_heads, keys) = p.q.shape, p.k.shape[1:3]
    n = torch.full((batch,), keys) if p.key_lengths is None else p.key_lengths.long()
    n = n[:, None, None, None]
    j = torch.arange(keys)
    at = torch.arange(rows)[:, None] + (n - rows if p.causal == "bottom-right" else 0 * n)
    counts = (j < n).mT
    k, v = (torch.where(counts, x.double(), 0.0).repeat_interleave(heads // kv_heads, 1) for x in (p.k, p.v))
    score = score_mod(p, p.q.double() @ k.mT * p.scale, at, j)
    score = score + torch.where(seen(p, n, at, j), 0.0, -torch.inf)
    empty = (score == -torch.inf).all(-1, keepdim=True)
    weights = torch.where(empty, 0.0, torch.softmax(torch.where(empty, 0.0, score), -1))
    lse = torch.where(empty, -torch.inf, torch.logsumexp(torch.where(empty, 0.0, score), -1, keepdim=True))
    return (weights @ v).to(p.q.dtype), lse[..., 0].float()


SUBJECT = mods

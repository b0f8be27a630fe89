"""Attention of one sequence in plain torch, in fp32 or wider: what the kernels of these tests are made of."""

import itertools

import torch


def attend(q, k, v, scale, *, causal=False, window=(-1, -1), softcap=0.0, slopes=None, sink=None):
    """O `[S, H, Dv]` in the dtype of q and the natural LSE `[S, H]` of q `[S, H, D]`, k and v `[Sk, Hkv, D]`; aligned at the last key."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, 1) for x in (k, v))
    s = torch.einsum("ihd,jhd->hij", q.float(), k) * scale
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    place = torch.arange(q.shape[0]).view(-1, 1) + k.shape[0] - q.shape[0]
    key = torch.arange(k.shape[0]).view(1, -1)
    if slopes is not None:
        s = s - slopes.float().view(-1, 1, 1) * (place - key).abs()
    hidden = torch.zeros(place.shape[0], key.shape[1], dtype=torch.bool)
    left, right = window
    if causal:
        hidden = hidden | (key > place)
    if left >= 0:
        hidden = hidden | (key < place - left)
    if right >= 0:
        hidden = hidden | (key > place + right)
    s = s.masked_fill(hidden, float("-inf"))
    terms = s if sink is None else torch.cat((s, sink.float().view(-1, 1, 1).expand(-1, s.shape[1], 1)), 2)
    lse = torch.logsumexp(terms, 2) if terms.shape[2] else terms.new_full(terms.shape[:2], float("-inf"))
    p = (s - lse.masked_fill(lse.isneginf(), 0.0).unsqueeze(2)).exp()
    return torch.einsum("hij,jhd->ihd", p, v).to(q.dtype), lse.T


def sequences(starts_q, starts_k, function):
    """`function(rows, keys)` of the slices of each sequence, joined: `[T, H, D]` and `[T, H]`."""
    found = [
        function(slice(a, b), slice(c, d)) for (a, b), (c, d) in zip(pairs(starts_q), pairs(starts_k), strict=True)
    ]
    return torch.cat([o for o, _ in found]), torch.cat([lse for _, lse in found])


def pairs(starts):
    starts = starts.tolist()
    return list(itertools.pairwise(starts))


def filled(x, rows):
    """With rows of zeros behind, up to `rows`."""
    return torch.nn.functional.pad(x, (0, 0) * (x.dim() - 1) + (0, rows - x.shape[0]))


CHECKS = ("accuracy", "nonfinite", "memory", "padding")
"""What the cases of these tests are judged by."""

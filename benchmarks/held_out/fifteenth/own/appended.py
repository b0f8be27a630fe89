"""Attention of a prompt that comes in pieces, over a cache of keys that grows with it, in plain torch, written for this set: fp64, forward only.

The memory of the cache is kept for later calls of the same shape. It takes causal masks of both alignments, the left side of a window and ALiBi.
"""

import torch

from flashverify import Supports, subject

_CACHES = {}


class Cache:
    """Room for the keys and values of a batch, of which the first `count` are there."""

    def __init__(self, k, v):
        self.k, self.v = torch.empty_like(k), torch.empty_like(v)
        self.count = 0

    def append(self, k, v, stop):
        """Takes in what comes up to key `stop`; returns all that is there."""
        new = slice(self.count, max(stop, self.count))
        self.k[:, :, new], self.v[:, :, new] = k[:, :, new], v[:, :, new]
        self.count = new.stop
        return self.k[:, :, : self.count], self.v[:, :, : self.count]


def cache_of(k, v):
    """An empty cache."""
    key = (k.shape, v.shape)
    if key not in _CACHES:
        _CACHES[key] = Cache(k, v)
    cache = _CACHES[key]
    cache.count = 0
    return cache


def attend(q, k, v, at, p):
    """O and the natural LSE of rows that stand at `at` among the keys, `[rows, 1]`."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    j = torch.arange(k.shape[2])
    s = q @ k.mT * p.scale
    if p.slopes is not None:
        s = s - p.slopes.double()[:, None, None] * (at - j).abs()
    see = torch.ones(at.shape[0], k.shape[2], dtype=torch.bool)
    if p.causal is not None:
        see = j <= at
    if p.window is not None and p.window[0] is not None:
        see = see & (j >= at - p.window[0])
    s = s.masked_fill(~see, -torch.inf)
    empty = (s == -torch.inf).all(-1, keepdim=True)
    s = torch.where(empty, 0.0, s)
    lse = torch.logsumexp(s, -1, keepdim=True) if s.shape[-1] else torch.zeros(*s.shape[:3], 1, dtype=s.dtype)
    return torch.where(empty, 0.0, torch.softmax(s, -1)) @ v, torch.where(empty, -torch.inf, lse)


@subject(
    supports=Supports(
        masks=("causal", "window"),
        window_sides=("left",),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        backward=False,
        non_finite=False,
        launch=(("piece", (32, 8, 20)),),
    ),
    device="cpu",
)
def appended(p):
    """O and the natural LSE, piece by piece."""
    q, k, v = (x.double() for x in (p.q, p.k, p.v))
    rows, keys = q.shape[2], k.shape[2]
    shift = keys - rows if p.causal == "bottom-right" else 0
    piece = dict(p.case.launch or ()).get("piece", 32)
    cache, found = cache_of(k, v), []
    for begin in range(0, rows, piece):
        end = min(begin + piece, rows)
        stop = keys if p.causal is None else min(max(end + shift, 0), keys)
        there = cache.append(k, v, stop)
        at = torch.arange(begin, end)[:, None] + shift
        found.append(attend(q[:, :, begin:end], *there, at, p))
    o, lse = (torch.cat(x, 2) for x in zip(*found, strict=True))
    return o.to(p.q.dtype), lse[..., 0].float()


SUBJECT = appended

"""A small correct attention, and ways to break it."""

import math

import torch

from flashverify.subjects import Contract, FunctionSubject, Supports

SUPPORTS = Supports(
    dtypes=("fp32",), masks=("causal", "key_lengths"), empty=True, scales=("positive", "zero", "negative")
)


def attention(p, *, shift=0, extra=0.0, drop_mask=False):
    """(O, LSE) in fp32; `shift` moves the causal diagonal, `extra` scales the logits wrongly."""
    group = p.case.heads_q // p.case.heads_kv
    lengths = p.key_lengths if p.key_lengths is not None else torch.full((p.case.batch,), p.case.seq_k)
    inside = torch.arange(p.case.seq_k) < lengths.view(-1, 1, 1, 1)
    k = torch.where(inside.mT, p.k, 0.0).repeat_interleave(group, 1)
    v = torch.where(inside.mT, p.v, 0.0).repeat_interleave(group, 1)
    s = (p.q @ k.mT) * (p.scale * (1 + extra))
    rows, keys = torch.arange(p.case.seq_q).view(-1, 1), torch.arange(p.case.seq_k)
    see = inside
    if p.causal is not None:
        offset = lengths.view(-1, 1, 1, 1) - p.case.seq_q if p.causal == "bottom-right" else 0
        see = see & (keys <= rows + offset + shift)
    see = see.expand(s.shape) if not drop_mask else torch.ones_like(s, dtype=torch.bool)
    some = see.any(-1, keepdim=True)
    s = torch.where(see, s, -math.inf)
    m = torch.where(some, s.amax(-1, keepdim=True) if s.shape[-1] else 0.0, 0.0)
    w = torch.exp(s - m)
    total = torch.where(some, w.sum(-1, keepdim=True), 1.0)
    lse = torch.where(some, m + total.log(), -math.inf).squeeze(-1)
    return (w / total) @ v, lse


def make(function=attention, **fields):
    defaults = {"name": "naive", "supports": SUPPORTS, "contract": Contract(deterministic=True, batch_invariant=None)}
    return FunctionSubject(function=function, where="cpu", **(defaults | fields))

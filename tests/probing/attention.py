"""Attention in plain torch with one thing at a time done in another way, as subjects that declare nothing."""

import math

import torch

from flashverify import subject
from flashverify.probing.answering import Answering
from flashverify.probing.questions import Load
from flashverify.probing.survey import survey


def attention(p, *, mask=None, scale=None, lse_unit=1.0, summed=lambda w: w, empty=None):
    """O in the dtype of q, and the LSE: P is normalised at the end and rounded before the product with V, as kernels do."""
    group = p.q.shape[1] // p.k.shape[1]
    k, v = (x.float().repeat_interleave(group, 1) for x in (p.k, p.v))
    s = p.q.float() @ k.mT * (p.scale if scale is None else scale)
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    top = s.amax(-1, keepdim=True) if s.shape[-1] else s.new_zeros((*s.shape[:-1], 1))
    dead = top == -torch.inf
    w = (s - top.masked_fill(dead, 0.0)).exp()
    total = summed(w).sum(-1, keepdim=True)
    o = w.to(p.q.dtype).float() @ v / torch.where(total == 0, 1.0, total)
    lse = torch.where(total == 0, -torch.inf, top.masked_fill(dead, 0.0) + total.log()).squeeze(-1) / lse_unit
    if empty is not None:
        o, lse = empty(o, lse, dead, v)
    return o.to(p.q.dtype), lse


def band(p, *, corner, shift=0):
    """Causal, aligned at a corner; `shift` more keys are seen."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    at = torch.arange(rows)[:, None] + (keys - rows if corner == "bottom-right" else 0)
    return torch.arange(keys) <= at + shift


def probed(function, *topics, forms=(), seconds=60, **declared):
    """What a probe in this process infers of a function."""
    answering = Answering(subject(device="cpu", **declared)(function))
    loaded = answering.ask(Load(subject="here:function", device="cpu"))
    return survey(answering, loaded, spec="here:function", device="cpu", seconds=seconds, topics=topics, forms=forms)


def inferred(found, of="supports"):
    """The inferred fields as Python text, by name."""
    return {field.name: field.inferred for field in found.fields if field.of == of and field.inferred}


def suspects(found):
    """What looks like a defect, by name."""
    return [suspect.what for suspect in found.suspects]


BASE_2 = math.log(2.0)

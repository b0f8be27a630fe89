"""Attention with a pattern of blocks by gathering the keys of live blocks, in plain torch, differentiated by autograd, written for this set: fp64.

Every block of rows has a list of its live blocks of keys, and all lists are as long as the longest. It takes groups of heads, patterns that sequences
and heads may share, causal masks of both alignments and key lengths.
"""

import torch

from flashverify import Contract, Supports, subject


def padded(x, size):
    """The rows of `x` in whole blocks, `[B, H, blocks, size, D]`; 0 behind the last one."""
    x = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[2] % size))
    return x.unflatten(2, (-1, size))


def lists_of(live):
    """The live blocks of keys of each block of rows, `[B, H, blocks, entries]`, in ascending order, and which entries name one."""
    counts = live.sum(-1)
    entries = max(int(counts.max()), 1)
    order = torch.argsort((~live).to(torch.uint8), dim=-1, stable=True)
    return order[..., :entries], torch.arange(entries) < counts[..., None]


def gathered(blocks, lists):
    """The blocks `[B, H, blocks, size, D]` that lists name, `[B, H, lists, entries * size, D]`."""
    batch, heads, rows, entries = lists.shape
    at = lists.flatten(2)[..., None, None].expand(-1, -1, -1, *blocks.shape[3:])
    return blocks.gather(2, at).reshape(batch, heads, rows, entries * blocks.shape[3], blocks.shape[4])


@subject(
    supports=Supports(
        masks=("blocks", "causal", "key_lengths"),
        required_masks=("blocks",),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
    ),
    contract=Contract(reads_outputs=False),
    device="cpu",
)
def live_keys(p):
    """O and the natural LSE."""
    (batch, heads, rows, _), (kv_heads, keys) = p.q.shape, p.k.shape[1:3]
    size_q, size_k = p.case.mask.blocks.rows, p.case.mask.blocks.keys
    lengths = torch.full((batch,), keys) if p.key_lengths is None else p.key_lengths.long()
    k, v = (x.double().repeat_interleave(heads // kv_heads, 1) for x in (p.k, p.v))
    counts = (torch.arange(keys) < lengths[:, None])[:, None, :, None]
    k, v = (torch.where(counts, x, 0.0) for x in (k, v))
    live = p.blocks.expand(batch, heads, -1, -1)
    lists, named = lists_of(live)
    number = (lists[..., None] * size_k + torch.arange(size_k)).flatten(3)
    see = named.repeat_interleave(size_k, 3) & (number < lengths[:, None, None, None])
    see = see[:, :, :, None].expand(-1, -1, -1, size_q, -1)
    if p.causal is not None:
        shift = lengths - rows if p.causal == "bottom-right" else torch.zeros_like(lengths)
        place = torch.arange(live.shape[2] * size_q).view(-1, size_q, 1) + shift[:, None, None, None, None]
        see = see & (number[:, :, :, None] <= place)
    s = padded(p.q.double(), size_q) @ gathered(padded(k, size_k), lists).mT * p.scale
    s = s.masked_fill(~see, -torch.inf)
    empty = (s == -torch.inf).all(-1, keepdim=True)
    s = torch.where(empty, 0.0, s)
    o = torch.where(empty, 0.0, torch.softmax(s, -1)) @ gathered(padded(v, size_k), lists)
    lse = torch.where(empty, -torch.inf, torch.logsumexp(s, -1, keepdim=True))
    o, lse = (x.flatten(2, 3)[:, :, :rows] for x in (o, lse))
    return o.to(p.q.dtype), lse[..., 0].float()


SUBJECT = live_keys

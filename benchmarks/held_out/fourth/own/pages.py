"""Decoding over a paged cache in plain torch, written for this set: the keys of a sequence in parts, which are merged; forward only."""

import torch

from flashverify import Supports, subject


def keys_of(cache, row, first, last):
    """The keys `first` to `last` of a sequence whose pages `row` names, `[Hkv, keys, D]` fp32."""
    size = cache.shape[1]
    at = torch.arange(first, last)
    page, slot = row[at // size].long(), at % size
    return cache[page, slot].transpose(0, 1).float()


def part_of(q, k, v, see, scale):
    """O `[Hq, Sq, Dv]`, the maximum and the row sum `[Hq, Sq]` of one part of the keys."""
    s = (q @ k.mT * scale).masked_fill(~see, -torch.inf)
    m = s.amax(-1)
    weights = torch.exp(s - torch.where(m == -torch.inf, 0.0, m)[..., None])
    total = weights.sum(-1)
    divisor = torch.where(total == 0, 1.0, total)
    return weights @ v / divisor[..., None], m, total


def merged(parts):
    """O and the natural LSE of all parts."""
    o, m, total = (torch.stack(x) for x in zip(*parts, strict=True))
    lse = m + torch.log(torch.where(total == 0, 1.0, total))
    top = lse.amax(0)
    shares = torch.exp(lse - torch.where(top == -torch.inf, 0.0, top))
    whole = shares.sum(0)
    divisor = torch.where(whole == 0, 1.0, whole)
    return (o * shares[..., None]).sum(0) / divisor[..., None], top + torch.log(divisor)


def attention(q, k_cache, v_cache, table, lengths, *, scale, causal, parts):
    """O `[B, Sq, Hq, Dv]` in the dtype of q and the natural LSE `[B, Hq, Sq]`; causal rows end at the last key."""
    batch, rows, heads, _ = q.shape
    group = heads // k_cache.shape[2]
    o = torch.zeros(batch, rows, heads, v_cache.shape[3], dtype=q.dtype)
    lse = torch.full((batch, heads, rows), -torch.inf)
    for b in range(batch):
        n = int(lengths[b])
        found = []
        for part in range(parts):
            first, last = n * part // parts, n * (part + 1) // parts
            if first == last:
                continue
            k = keys_of(k_cache, table[b], first, last).repeat_interleave(group, 0)
            v = keys_of(v_cache, table[b], first, last).repeat_interleave(group, 0)
            at = torch.arange(rows)[:, None] + n - rows
            j = torch.arange(first, last)
            see = (j <= at) if causal else (j >= 0).expand(rows, -1)
            found.append(part_of(q[b].transpose(0, 1).float(), k, v, see, scale))
        if found:
            whole, lse[b] = merged(found)
            o[b] = whole.transpose(0, 1).to(q.dtype)
    return o, lse


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        causal=("bottom-right",),
        max_seq_q=8,
        page_sizes=(1, 4, 16, 48),
        always_paged=True,
        non_finite=False,
        backward=False,
        launch=(("parts", (1, 2, 3)),),
    ),
    device="cpu",
)
def pages(p):
    """The adapter."""
    x = p.paged("flash-attn")
    o, lse = attention(
        x.q, x.k_cache, x.v_cache, x.block_table, x.cache_seqlens,
        scale=p.scale,
        causal=p.causal is not None,
        **{"parts": 2} | dict(p.case.launch or ()),
    )  # fmt: skip
    return p.outputs(o, lse, "bshd")


SUBJECT = pages

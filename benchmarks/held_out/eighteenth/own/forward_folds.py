"""Attention in plain torch over chunks of keys whose results are folded pairwise, written for this set; forward only.

Each chunk gives sums of weights and values and a maximum in fp32; neighbours are folded until one is left. It takes groups of heads, packed into the rows of
their kv head, causal masks and windows of either alignment, a bitmap, key lengths, a softcap, slopes and a bias.
"""

import torch

from flashverify import Contract, Forward, Supports, subject


def packed_rows(x, kv_heads):
    """`[B, Hq, Sq, ...]` as `[B, Hkv, group, Sq, ...]`, also where the heads are one for all."""
    if x.shape[1] == 1:
        return x[:, :, None]
    return x.unflatten(1, (kv_heads, x.shape[1] // kv_heads))


def band(p, start, stop):
    """Which pairs of all rows and the keys from `start` to `stop` take part, `[B or 1, 1, 1, Sq, n]`, and their distances."""
    rows, keys = p.q.shape[2], p.k.shape[2]
    j = torch.arange(start, stop, device=p.q.device)
    ends = torch.tensor([keys], device=p.q.device) if p.key_lengths is None else p.key_lengths.long()
    ends = ends[:, None, None]
    at_end = "bottom-right" in (p.causal, p.window_alignment)
    place = torch.arange(rows, device=p.q.device)[None, :, None] + (ends - rows if at_end else 0)
    see = (j < ends).expand(ends.shape[0], rows, stop - start)
    if p.causal is not None:
        see = see & (j <= place)
    left, right = p.window or (None, None)
    if left is not None:
        see = see & (j >= place - left)
    if right is not None:
        see = see & (j <= place + right)
    return see[:, None, None], (place - j).abs()[:, None, None]


def chunk(p, start, stop):
    """The weighted sum of values, the sum of weights and the maximum over the keys from `start` to `stop`, `[B, Hkv, group, Sq, ...]` fp32."""
    kv_heads = p.k.shape[1]
    see, distance = band(p, start, stop)
    q = packed_rows(p.q, kv_heads).float()
    # what lies behind the lengths may hold anything
    there = see.flatten(1, 3).any(1)[:, None, None, :, None]
    k, v = (torch.where(there, x[:, :, None, start:stop].float(), 0.0) for x in (p.k, p.v))
    s = q @ k.mT * p.scale
    if p.softcap is not None:
        s = p.softcap * torch.tanh(s / p.softcap)
    if p.bias is not None:
        s = s + packed_rows(p.bias, kv_heads)[..., start:stop].float()
    if p.slopes is not None:
        s = s - packed_rows(p.slopes[None], kv_heads)[..., None, None] * distance
    if p.bitmap is not None:
        see = see & packed_rows(p.bitmap, kv_heads)[..., start:stop]
    s = torch.where(see, s, -torch.inf)
    m = s.amax(-1)
    weights = torch.exp(s - torch.where(m == -torch.inf, 0.0, m)[..., None])
    return weights @ v, weights.sum(-1), m


def fold(one, other):
    """Two results over disjoint keys as one."""
    (acc_1, total_1, m_1), (acc_2, total_2, m_2) = one, other
    m = torch.maximum(m_1, m_2)
    pivot = torch.where(m == -torch.inf, 0.0, m)
    share_1, share_2 = torch.exp(m_1 - pivot), torch.exp(m_2 - pivot)
    acc = acc_1 * share_1[..., None] + acc_2 * share_2[..., None]
    return acc, total_1 * share_1 + total_2 * share_2, m


@subject(
    supports=Supports(
        masks=("causal", "window", "bitmap", "key_lengths"),
        window_alignments=("top-left", "bottom-right"),
        logits=("softcap", "alibi", "bias"),
        scales=("default", "positive", "negative"),
        wild_slopes=False,
        launch=(("CHUNK", (32, 16, 48)),),
    ),
    contract=Contract(gradients=frozenset()),
)
def forward_folds(p):
    """The adapter."""
    keys, size = p.k.shape[2], dict(p.case.launch or ()).get("CHUNK", 32)
    parts = [chunk(p, start, min(start + size, keys)) for start in range(0, keys, size)]
    while len(parts) > 1:
        folded = [fold(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        if len(parts) % 2:
            folded.append(parts[-1])
        parts = folded
    acc, total, m = parts[0]
    divisor = torch.where(total == 0.0, 1.0, total)
    o = acc / divisor[..., None]
    return Forward(o.flatten(1, 2).to(p.q.dtype), (m + divisor.log()).flatten(1, 2))


SUBJECT = forward_folds

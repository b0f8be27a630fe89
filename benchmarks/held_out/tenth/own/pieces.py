"""Decoding over a paged cache in plain torch, written for this set: pieces of whole pages, each merged into what there is; forward only."""

import torch

from flashverify import Supports, subject


def gathered(cache, pages, group):
    """The keys of the pages, one behind the other, `[Hq, keys, D]` fp32."""
    return cache[pages].flatten(0, 1).transpose(0, 1).float().repeat_interleave(group, 0)


def piece_of(q, k, v, see, scale, softcap):
    """O `[Hq, Sq, Dv]` and the natural LSE `[Hq, Sq]` of the keys of one piece."""
    s = q @ k.mT * scale
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    s = s.masked_fill(~see, -torch.inf)
    m = s.amax(-1, keepdim=True)
    weights = torch.exp(s - torch.where(m == -torch.inf, 0.0, m))
    total = weights.sum(-1, keepdim=True)
    divisor = torch.where(total == 0, 1.0, total)
    return weights @ torch.where(see.any(-2)[:, None], v, 0.0) / divisor, (m + torch.log(divisor))[..., 0]


def joined(o, lse, o_new, lse_new):
    """What there is and one more piece: the share of the piece is the logistic function of how far its LSE lies above."""
    share = torch.sigmoid(lse_new - lse)
    both = lse - torch.nn.functional.logsigmoid(lse - lse_new)
    mixed = o - share[..., None] * (o - o_new)
    fresh, spent = lse == -torch.inf, lse_new == -torch.inf
    lse = torch.where(spent, lse, torch.where(fresh, lse_new, both))
    o = torch.where(spent[..., None], o, torch.where(fresh[..., None], o_new, mixed))
    return o, lse


def attention(q, k_cache, v_cache, table, lengths, *, scale, softcap, causal, pieces):
    """O `[B, Sq, Hq, Dv]` in the dtype of q and the natural LSE `[B, Hq, Sq]`; causal rows end at the last key."""
    batch, rows, heads, _ = q.shape
    size, group = k_cache.shape[1], heads // k_cache.shape[2]
    out = torch.zeros(batch, rows, heads, v_cache.shape[3], dtype=q.dtype)
    ends = torch.full((batch, heads, rows), -torch.inf)
    for b in range(batch):
        n = int(lengths[b])
        count = -(-n // size)
        o = torch.zeros(heads, rows, v_cache.shape[3])
        for piece in range(pieces):
            first, last = count * piece // pieces, count * (piece + 1) // pieces
            if first == last:
                continue
            pages = table[b, first:last].long()
            j = torch.arange(first * size, last * size)
            see = (j < n).expand(rows, -1)
            if causal:
                see = see & (j <= torch.arange(rows)[:, None] + n - rows)
            k, v = (gathered(cache, pages, group) for cache in (k_cache, v_cache))
            k = torch.where((j < n)[:, None], k, 0.0)
            found = piece_of(q[b].transpose(0, 1).float(), k, v, see, scale, softcap)
            o, ends[b] = joined(o, ends[b], *found)
        out[b] = o.transpose(0, 1).to(q.dtype)
    return out, ends


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        causal=("bottom-right",),
        logits=("softcap",),
        max_seq_q=8,
        page_sizes=(1, 8, 16, 24),
        always_paged=True,
        non_finite=False,
        backward=False,
        launch=(("pieces", (2, 1, 3)),),
    ),
    device="cpu",
)
def pieces(p):
    """The adapter."""
    x = p.paged("flash-attn")
    o, lse = attention(
        x.q, x.k_cache, x.v_cache, x.block_table, x.cache_seqlens,
        scale=p.scale,
        softcap=p.softcap,
        causal=p.causal is not None,
        **{"pieces": 2} | dict(p.case.launch or ()),
    )  # fmt: skip
    return p.outputs(o, lse, "bshd")


SUBJECT = pieces

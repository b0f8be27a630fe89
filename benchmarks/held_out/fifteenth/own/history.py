"""Attention of chunks of rows to their history and to themselves, in plain torch, differentiated by autograd, written for this set: fp64, rounded once.

The keys before a chunk are seen by all of its rows, those of the chunk itself by a causal mask; both parts are merged. It takes causal
masks of both alignments and key lengths; without a causal mask all keys are history.
"""

import torch

from flashverify import Contract, Supports, subject


def part(q, k, v, see, scale):
    """O and the natural LSE over some keys, `[H, rows, ...]`; `see` is None where every row sees all of them."""
    s = q @ k.mT * scale
    if see is not None:
        s = s.masked_fill(~see, -torch.inf)
    empty = (s == -torch.inf).all(-1, keepdim=True)
    s = torch.where(empty, 0.0, s)
    weights = torch.where(empty, 0.0, torch.softmax(s, -1))
    lse = torch.logsumexp(s, -1, keepdim=True) if s.shape[-1] else s.sum(-1, keepdim=True)
    return weights @ v, torch.where(empty, -torch.inf, lse)


def merged(first, second):
    """Two parts in one."""
    (o1, lse1), (o2, lse2) = first, second
    m = torch.maximum(lse1, lse2).detach()
    pivot = torch.where(m == -torch.inf, 0.0, m)
    w1, w2 = torch.exp(lse1 - pivot), torch.exp(lse2 - pivot)
    total = w1 + w2
    divisor = torch.where(total == 0, 1.0, total)
    return (w1 * o1 + w2 * o2) / divisor, torch.where(total == 0, -torch.inf, pivot + torch.log(divisor))


def rows_of_chunk(q, k, v, begin, stop, n, shift, causal, scale):
    """O and the LSE of the rows from `begin` to `stop` of a sequence of `n` keys."""
    x = q[:, begin:stop]
    if causal is None:
        return part(x, k[:, :n], v[:, :n], None, scale)
    low, high = (min(max(row + shift, 0), n) for row in (begin, stop))
    history = part(x, k[:, :low], v[:, :low], None, scale)
    see = torch.arange(low, high) <= torch.arange(begin, stop)[:, None] + shift
    return merged(history, part(x, k[:, low:high], v[:, low:high], see, scale))


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        scales=("default", "positive", "negative"),
        dlse=True,
        non_finite=False,
        launch=(("chunk", (32, 16, 24)),),
    ),
    contract=Contract(reads_outputs=False, gradients=frozenset({"dq", "dk", "dv"})),
    device="cpu",
)
def history(p):
    """O and the natural LSE."""
    (batch, heads, rows, _), (kv_heads, keys) = p.q.shape, p.k.shape[1:3]
    lengths = [keys] * batch if p.key_lengths is None else p.key_lengths.tolist()
    chunk = dict(p.case.launch or ()).get("chunk", 32)
    found = []
    for b, n in enumerate(lengths):
        q = p.q[b].double()
        k, v = (x[b].double().repeat_interleave(heads // kv_heads, 0) for x in (p.k, p.v))
        shift = n - rows if p.causal == "bottom-right" else 0
        chunks = [
            rows_of_chunk(q, k, v, begin, min(begin + chunk, rows), n, shift, p.causal, p.scale)
            for begin in range(0, rows, chunk)
        ]
        found.append([torch.cat(x, 1) for x in zip(*chunks, strict=True)])
    o, lse = (torch.stack(x) for x in zip(*found, strict=True))
    return o.to(p.q.dtype), lse[..., 0].float()


SUBJECT = history

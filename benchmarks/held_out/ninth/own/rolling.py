"""Decoding with a window over a cache that rolls, in Triton, written for this set: key j lies in slot j % room, over the key that was there.

`[B, H, S, D]`, natural exponentials, forward only. The rows end at the last key and see as many keys before them as the window has.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject

BLOCK = 16


@triton.jit
def rows_at(ptr, at, keep, channels, C: tl.constexpr):
    """The rows `at` of a contiguous head, `[len(at), C]`; 0 where they are not kept and behind `channels`."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=keep[:, None] & (c < channels), other=0.0)


@triton.jit
def rolling_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale,
    heads, group, rows, keys, room, left, d, dv,
    LENGTHS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of a tile of rows of a query head; the walk is over slots, in any order of keys."""
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    hk = (b * (heads // group) + h // group).to(tl.int64)
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = i + n - rows
    first = tl.program_id(1).to(tl.int64) * rows
    q = rows_at(q_ptr + first * d, i, i < rows, d, C)
    k_ptr += hk * room * d
    v_ptr += hk * room * dv

    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    for start in range(0, room, STEP):
        slot = start + tl.arange(0, STEP)
        j = slot + tl.maximum(n - 1 - slot, 0) // room * room  # the newest key of the slot
        there = (slot < room) & (j < n)
        dot = tl.dot(q, tl.trans(rows_at(k_ptr, slot, there, d, C)), input_precision="ieee")
        see = there[None, :] & (i < rows)[:, None] & (j[None, :] <= at[:, None]) & (j[None, :] >= at[:, None] - left)
        s = tl.where(see, dot * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - pivot[:, None])
        alpha = tl.exp(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        v = rows_at(v_ptr, slot, there, dv, CV)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    divisor = tl.where(total == 0.0, 1.0, total)
    c = tl.arange(0, CV)[None, :]
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + (first + i)[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv))
    tl.store(lse_ptr + first + i, m + tl.log(divisor), mask=i < rows)


def rolled(x, lengths, room):
    """The cache of `x` `[B, Hkv, Sk, C]`: what was written last into each of `room` slots; 0 in the others."""
    cache = x.new_zeros(*x.shape[:2], room, x.shape[3])
    for b, n in enumerate(lengths):
        newest = torch.arange(max(n - room, 0), n, device=x.device)
        cache[b, :, newest % room] = x[b, :, newest]
    return cache


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        required_masks=("causal", "window"),
        causal=("bottom-right",),
        window_sides=("left",),
        scales=("default", "positive", "negative"),
        max_seq_q=24,
        backward=False,
        launch=(("STEP", (32, 16, 64)),),
    ),
)
def rolling(p):
    """The adapter, which fills the cache."""
    (batch, heads, rows, d), (kv_heads, keys, dv) = p.q.shape, p.v.shape[1:]
    left = keys if p.window[0] is None else min(p.window[0], keys)
    room = min(left + rows, keys)
    lengths = [keys] * batch if p.key_lengths is None else p.key_lengths.tolist()
    k, v = (rolled(x, lengths, room) for x in (p.k, p.v))
    o = torch.empty(batch, heads, rows, dv, dtype=p.q.dtype, device=p.q.device)
    lse = torch.empty(batch, heads, rows, device=p.q.device)
    rolling_kernel[(triton.cdiv(rows, BLOCK), batch * heads)](
        p.q.contiguous(), k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, p.scale,
        heads, heads // kv_heads, rows, keys, room, left, d, dv,
        LENGTHS=p.key_lengths is not None, BLOCK=BLOCK, **({"STEP": 32} | dict(p.case.launch or ())),
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False,
    )  # fmt: skip
    return o, lse


SUBJECT = rolling

"""Attention in Triton whose programs walk the keys in two chains, written for this set: even steps in one, odd ones in the other, joined at the end.

`[B, H, S, D]`, natural exponentials, forward only. It takes groups of heads, causal masks, key lengths and ALiBi.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject

BLOCK = 32


@triton.jit
def rows_of(ptr, at, limit, channels, C: tl.constexpr):
    """The rows `at` of a contiguous head, `[len(at), C]`; 0 from `limit` on and behind `channels`."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < limit)[:, None] & (c < channels), other=0.0)


@triton.jit
def step_of(
    q, k_ptr, v_ptr, i, start, n, shift, scale, slope, d, dv, m, total, acc,
    CAUSAL: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """A chain with one more step of keys: its maximum, its row sum and its accumulator."""
    j = start + tl.arange(0, STEP)
    k = rows_of(k_ptr, j, n, d, C)
    v = rows_of(v_ptr, j, n, dv, CV)
    distance = tl.abs(i[:, None] + shift - j[None, :]).to(tl.float32)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale - slope * distance
    see = (j < n)[None, :]
    if CAUSAL:
        see = see & (j[None, :] <= i[:, None] + shift)
    s = tl.where(see, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp(s - pivot[:, None])
    alpha = tl.exp(m - pivot)
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, total * alpha + tl.sum(p, 1), acc


@triton.jit
def halves_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, slopes_ptr, scale, heads, group, rows, keys, d, dv, align_end,
    CAUSAL: tl.constexpr, LENGTHS: tl.constexpr, SLOPES: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of a tile of rows of a query head."""
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    hk = (b * (heads // group) + h // group).to(tl.int64)
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    slope = 0.0
    if SLOPES:
        slope = tl.load(slopes_ptr + h)
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    shift = align_end * (n - rows)
    head = tl.program_id(1).to(tl.int64) * rows
    q = rows_of(q_ptr + head * d, i, rows, d, C)
    k_ptr += hk * keys * d
    v_ptr += hk * keys * dv

    m_even = tl.full([BLOCK], float("-inf"), tl.float32)
    m_odd = tl.full([BLOCK], float("-inf"), tl.float32)
    total_even = tl.zeros([BLOCK], tl.float32)
    total_odd = tl.zeros([BLOCK], tl.float32)
    acc_even = tl.zeros([BLOCK, CV], tl.float32)
    acc_odd = tl.zeros([BLOCK, CV], tl.float32)
    stop = n
    if CAUSAL:
        stop = tl.minimum(first + BLOCK + shift, n)
    for start in range(0, stop, 2 * STEP):
        m_even, total_even, acc_even = step_of(
            q, k_ptr, v_ptr, i, start, n, shift, scale, slope, d, dv, m_even, total_even, acc_even, CAUSAL, STEP, C, CV
        )
        if start + STEP < stop:
            m_odd, total_odd, acc_odd = step_of(
                q, k_ptr, v_ptr, i, start + STEP, n, shift, scale, slope, d, dv, m_odd, total_odd, acc_odd, CAUSAL, STEP, C, CV
            )  # fmt: skip

    m = tl.maximum(m_even, m_odd)
    pivot = tl.where(m == float("-inf"), 0.0, m)
    even, odd = tl.exp(m_even - pivot), tl.exp(m_odd - pivot)
    total = total_even * even + total_odd * odd
    acc = acc_even * even[:, None] + acc_odd * odd[:, None]
    divisor = tl.where(total == 0.0, 1.0, total)
    c = tl.arange(0, CV)[None, :]
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + (head + i)[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv))
    tl.store(lse_ptr + head + i, m + tl.log(divisor), mask=i < rows)


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("STEP", (32, 16, 64)),),
    ),
)
def halves(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), (kv_heads, keys, dv) = q.shape, v.shape[1:]
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    halves_kernel[(triton.cdiv(rows, BLOCK), batch * heads)](
        q, k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, lse if p.slopes is None else p.slopes, p.scale,
        heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"),
        CAUSAL=p.causal is not None, LENGTHS=p.key_lengths is not None, SLOPES=p.slopes is not None,
        BLOCK=BLOCK, STEP=dict(p.case.launch or ()).get("STEP", 32),
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False,
    )  # fmt: skip
    return o, lse


SUBJECT = halves

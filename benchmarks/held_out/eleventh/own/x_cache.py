"""Decoding in Triton over the cache of the first paged attention kernels, written for this set: keys in words of 16 bytes, values by channel.

Keys lie as `[page, head, D / x, slot, x]` with x = 16 bytes, values as `[page, head, Dv, slot]`. One row a sequence, natural exponentials,
forward only.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject

STEP = 128


@triton.jit
def x_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, table_ptr, lengths_ptr, slopes_ptr, scale,
    heads, group, d, dv, size, k_page, k_head, v_page, v_head, table_row, q_row, q_head,
    SLOPES: tl.constexpr, X: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of the row of a sequence and a query head."""
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    n = tl.load(lengths_ptr + b)
    c, cv = tl.arange(0, C), tl.arange(0, CV)
    q = tl.load(q_ptr + b * q_row + h * q_head + c, mask=c < d, other=0.0).to(tl.float32)
    k_ptr += h // group * k_head
    v_ptr += h // group * v_head
    m = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    acc = tl.zeros([CV], tl.float32)
    for start in range(0, n, STEP):
        j = start + tl.arange(0, STEP)
        there = j < n
        page = tl.load(table_ptr + b * table_row + j // size, mask=there, other=0).to(tl.int64)
        slot = j % size
        k_at = (page * k_page)[:, None] + (c // X * (size * X) + c % X)[None, :] + (slot * X)[:, None]
        k = tl.load(k_ptr + k_at, mask=there[:, None] & (c < d)[None, :], other=0.0)
        s = tl.sum(q[None, :] * k.to(tl.float32), 1) * scale
        if SLOPES:
            s -= tl.load(slopes_ptr + h) * (n - 1 - j).to(tl.float32)
        s = tl.where(there, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        p = tl.exp(s - m_new)
        alpha = tl.exp(m - m_new)
        total = total * alpha + tl.sum(p, 0)
        v_at = (page * v_page + slot)[:, None] + cv[None, :] * size
        v = tl.load(v_ptr + v_at, mask=there[:, None] & (cv < dv)[None, :], other=0.0)
        acc = acc * alpha + tl.sum(p[:, None] * v.to(tl.float32), 0)
        m = m_new

    divisor = tl.where(total == 0.0, 1.0, total)
    at = b * heads + h
    tl.store(o_ptr + at * dv + cv, (acc / divisor).to(o_ptr.dtype.element_ty), mask=cv < dv)
    tl.store(lse_ptr + at, m + tl.log(divisor))


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        causal=("bottom-right",),
        logits=("alibi",),
        seq_q=(1,),
        page_sizes=(16, 24, 64),
        always_paged=True,
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        backward=False,
        also=lambda case: "alibi without causal" if case.logits.alibi and case.mask.causal is None else None,
    ),
)
def x_cache(p):
    """The adapter."""
    x = p.paged("vllm-x")
    (batch, heads, d), (_, kv_heads, dv, size) = x.q.shape, x.value_cache.shape
    o = torch.empty(batch, heads, dv, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(batch, heads, device=x.q.device)
    x_kernel[(batch, heads)](
        x.q, x.key_cache, x.value_cache, o, lse, x.block_table, x.seq_lens, lse if p.slopes is None else p.slopes, p.scale,
        heads, heads // kv_heads, d, dv, size,
        *x.key_cache.stride()[:2], *x.value_cache.stride()[:2], x.block_table.stride(0), *x.q.stride()[:2],
        SLOPES=p.slopes is not None, X=x.key_cache.shape[4], STEP=STEP,
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False,
    )  # fmt: skip
    return p.outputs(o, lse, "thd", "th")


SUBJECT = x_cache

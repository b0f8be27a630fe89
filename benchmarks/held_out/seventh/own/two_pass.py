"""A forward in two passes over the keys in Triton, written for this set: the first finds the LSE of a row, the second its O.

It takes groups of heads, a causal mask that starts at the first key, key lengths and a softcap.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def rows_at(ptr, at, limit, step, channels, C: tl.constexpr):
    """The rows `at` of a head, 0 behind `limit` and `channels`."""
    c = tl.arange(0, C)
    return tl.load(ptr + at[:, None] * step + c, mask=(at < limit)[:, None] & (c < channels)[None, :], other=0.0)


@triton.jit
def capped(s, cap, CAP: tl.constexpr):
    """The logits under the softcap, natural units."""
    if CAP:
        e = tl.exp(-2.0 * tl.abs(s / cap))
        size = cap * (1.0 - e) / (1.0 + e)
        s = tl.where(s < 0.0, -size, size)
    return s


@triton.jit
def two_pass_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale, cap,
    heads, group, rows, keys, d, dv,
    CAUSAL: tl.constexpr, LENGTHS: tl.constexpr, CAP: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of a tile of rows of a query head."""
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    hk = (b * (heads // group) + h // group).to(tl.int64)
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1).to(tl.int64) * rows
    q = rows_at(q_ptr + first * d, i, rows, d, d, C)
    k_ptr += hk * keys * d
    v_ptr += hk * keys * dv
    stop = tl.minimum(n, (tl.program_id(0) + 1) * BLOCK) if CAUSAL else n

    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        s = capped(tl.dot(q, tl.trans(rows_at(k_ptr, j, n, d, d, C)), input_precision="ieee") * scale, cap, CAP)
        see = (j < n)[None, :] & (i < rows)[:, None]
        if CAUSAL:
            see = see & (j[None, :] <= i[:, None])
        s = tl.where(see, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        total = total * tl.exp(m - pivot) + tl.sum(tl.exp(s - pivot[:, None]), 1)
        m = m_new
    pivot = tl.where(m == float("-inf"), 0.0, m)
    divisor = tl.where(total == 0.0, 1.0, total)

    acc = tl.zeros([BLOCK, CV], tl.float32)
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        z = capped(tl.dot(q, tl.trans(rows_at(k_ptr, j, n, d, d, C)), input_precision="ieee") * scale, cap, CAP)
        see = (j < n)[None, :] & (i < rows)[:, None]
        if CAUSAL:
            see = see & (j[None, :] <= i[:, None])
        p = tl.where(see, tl.exp(z - pivot[:, None]), 0.0)
        v = rows_at(v_ptr, j, n, dv, dv, CV)
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")

    c = tl.arange(0, CV)
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + (first + i)[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv)[None, :])
    tl.store(lse_ptr + first + i, m + tl.log(divisor), mask=i < rows)


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        causal=("top-left",),
        logits=("softcap",),
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
)
def two_pass(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), dv = q.shape, v.shape[3]
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    tiles = {"BLOCK": 32, "STEP": 32} | dict(p.case.launch or ())
    two_pass_kernel[(triton.cdiv(rows, tiles["BLOCK"]), batch * heads)](
        q, k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, p.scale, p.softcap or 1.0,
        heads, heads // k.shape[1], rows, k.shape[2], d, dv,
        CAUSAL=p.causal is not None, LENGTHS=p.key_lengths is not None, CAP=p.softcap is not None,
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)),
        enable_fp_fusion=False, **tiles,
    )  # fmt: skip
    return o, lse


SUBJECT = two_pass

"""A forward over packed sequences in Triton, written for this set: tokens `[T, H, D]`, cumulative lengths, natural exponentials.

It takes groups of heads, a causal mask and a window to the left, whose rows end at the last key of their sequence. The maximum is that of
q k before the scale, which is positive.
"""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Supports, subject


@triton.jit
def tokens_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, cu_q_ptr, cu_k_ptr,
    q_t, q_h, k_t, k_h, v_t, v_h, o_t, o_h,
    scale, heads, group, room, left, D, DV,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and LSE of a tile of rows: one program per (tile of the longest sequence, sequence and query head)."""
    b = tl.program_id(1) // heads
    h = (tl.program_id(1) % heads).to(tl.int64)
    first_q, first_k = tl.load(cu_q_ptr + b), tl.load(cu_k_ptr + b)
    rows, n = tl.load(cu_q_ptr + b + 1) - first_q, tl.load(cu_k_ptr + b + 1) - first_k
    shift = n - rows
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c, cv = tl.arange(0, C), tl.arange(0, CV)
    token = (first_q + row).to(tl.int64)
    q_at = token[:, None] * q_t + h * q_h + c[None, :]
    q = tl.load(q_ptr + q_at, mask=(row < rows)[:, None] & (c < D)[None, :], other=0.0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    begin = 0
    if LEFT:
        begin = tl.maximum(tl.program_id(0) * BLOCK + shift - left, 0) // STEP * STEP
    stop = n
    if CAUSAL:
        stop = tl.minimum(n, (tl.program_id(0) + 1) * BLOCK + shift)
    for start in range(begin, stop, STEP):
        key = start + tl.arange(0, STEP)
        there = key < n
        k_at = (first_k + key).to(tl.int64)[:, None] * k_t + h // group * k_h + c[None, :]
        k = tl.load(k_ptr + k_at, mask=there[:, None] & (c < D)[None, :], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        see = there[None, :] & (row < rows)[:, None]
        if CAUSAL:
            see = see & (key[None, :] <= row[:, None] + shift)
        if LEFT:
            see = see & (key[None, :] >= row[:, None] + shift - left)
        s = tl.where(see, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp((s - pivot[:, None]) * scale)
        alpha = tl.exp((m - pivot) * scale)
        total = total * alpha + tl.sum(p, 1)
        v_at = (first_k + key).to(tl.int64)[:, None] * v_t + h // group * v_h + cv[None, :]
        v = tl.load(v_ptr + v_at, mask=there[:, None] & (cv < DV)[None, :], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    o_at = token[:, None] * o_t + h * o_h + cv[None, :]
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + o_at, o, mask=(row < rows)[:, None] & (cv < DV)[None, :])
    tl.store(lse_ptr + h * room + token, m * scale + tl.log(divisor), mask=row < rows)


def attention(q, k, v, cu_q, cu_k, max_q, *, scale, causal, left=None, block=32, step=32):
    """O `[T, H, Dv]` and the natural LSE `[H, T]`."""
    tokens, heads, d = q.shape
    dv, count = v.shape[2], cu_q.shape[0] - 1
    o = torch.zeros(tokens, heads, dv, dtype=q.dtype, device=q.device)
    lse = torch.full((heads, tokens), -torch.inf, device=q.device)
    if max_q and count:
        tokens_kernel[(triton.cdiv(max_q, block), count * heads)](
            q, k, v, o, lse, cu_q, cu_k,
            *(step for x in (q, k, v, o) for step in x.stride()[:2]),
            scale, heads, heads // k.shape[1], tokens, left or 0, d, dv,
            CAUSAL=causal, LEFT=left is not None, BLOCK=block, STEP=step,
            C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)),
            enable_fp_fusion=False,
        )  # fmt: skip
    return o, lse


@subject(
    supports=Supports(
        masks=("causal", "window", "packed"),
        required_masks=("packed",),
        causal=("bottom-right",),
        window_sides=("left",),
        window_alignments=("bottom-right",),
        scales=("default", "positive"),
        backward=False,
        launch=(("block", (32, 16, 64)), ("step", (32, 16, 64))),
    ),
    contract=Contract(padding="undefined"),
)
def packed_tokens(p):
    """The adapter."""
    x = p.varlen()
    o, lse = attention(
        x.q, x.k, x.v, p.cu_q, p.cu_k, p.max_q,
        scale=p.scale,
        causal=p.causal is not None,
        left=None if p.window is None else p.window[0],
        **dict(p.case.launch or ()),
    )  # fmt: skip
    return p.outputs(o, lse, "thd", "ht")


SUBJECT = packed_tokens

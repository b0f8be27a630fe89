"""Attention in Triton by pointers to blocks, written for this set: whole steps of keys in a first loop, masked ones in a second.

`[B, H, S, D]`, exponentials to base 2, natural LSE, forward only. It takes groups of heads, causal masks of both alignments, the left side
of a window and key lengths.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def step_of(q, k_block, v_block, see, m, total, acc, scale_log2, MASKED: tl.constexpr):
    """The maximum, the row sum and the accumulator with one more step of keys."""
    k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")  # [C, STEP]
    z = tl.dot(q, k, input_precision="ieee") * scale_log2
    if MASKED:
        z = tl.where(see, z, float("-inf"))
    m_new = tl.maximum(m, tl.max(z, 1))
    pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.exp2(z - pivot[:, None])
    alpha = tl.exp2(m - pivot)
    v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")  # [STEP, CV]
    acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
    return m_new, total * alpha + tl.sum(p, 1), acc


@triton.jit
def block_pointers_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale_log2, heads, group, rows, keys, d, dv, align_end, left,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of a tile of rows of a query head."""
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    hk = (b * (heads // group) + h // group).to(tl.int64)
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    shift = align_end * (n - rows)
    head = tl.program_id(1).to(tl.int64) * rows

    stop = tl.minimum(first + BLOCK + shift, n) if CAUSAL else n
    whole = tl.maximum(tl.minimum(first + shift + 1, n), 0) if CAUSAL else n  # every row sees the keys before
    begin = tl.maximum(first + shift - left, 0) // STEP * STEP if LEFT else 0
    masked = begin if LEFT else whole // STEP * STEP

    q_block = tl.make_block_ptr(q_ptr + head * d, (rows, d), (d, 1), (first, 0), (BLOCK, C), (1, 0))
    k_block = tl.make_block_ptr(k_ptr + hk * keys * d, (d, n), (1, d), (0, begin), (C, STEP), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + hk * keys * dv, (n, dv), (dv, 1), (begin, 0), (STEP, CV), (1, 0))
    o_block = tl.make_block_ptr(o_ptr + head * dv, (rows, dv), (dv, 1), (first, 0), (BLOCK, CV), (1, 0))
    q = tl.load(q_block, boundary_check=(0, 1), padding_option="zero")

    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    for _ in range(begin, masked, STEP):
        m, total, acc = step_of(q, k_block, v_block, i, m, total, acc, scale_log2, False)
        k_block = tl.advance(k_block, (0, STEP))
        v_block = tl.advance(v_block, (STEP, 0))
    for start in range(masked, stop, STEP):
        j = start + tl.arange(0, STEP)[None, :]
        see = (j < n) & (i < rows)[:, None]
        if CAUSAL:
            see = see & (j <= i[:, None] + shift)
        if LEFT:
            see = see & (j >= i[:, None] + shift - left)
        m, total, acc = step_of(q, k_block, v_block, see, m, total, acc, scale_log2, True)
        k_block = tl.advance(k_block, (0, STEP))
        v_block = tl.advance(v_block, (STEP, 0))

    divisor = tl.where(total == 0.0, 1.0, total)
    tl.store(o_block, (acc / divisor[:, None]).to(o_ptr.dtype.element_ty), boundary_check=(0, 1))
    tl.store(lse_ptr + head + i, (m + tl.log2(divisor)) * 0.6931471805599453, mask=i < rows)


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        window_sides=("left",),
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
)
def block_pointers(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), (kv_heads, keys, dv) = q.shape, v.shape[1:]
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    left = None if p.window is None else p.window[0]
    sizes = {"BLOCK": 32, "STEP": 32} | dict(p.case.launch or ())
    block_pointers_kernel[(triton.cdiv(rows, sizes["BLOCK"]), batch * heads)](
        q, k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, p.scale * 1.4426950408889634,
        heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"), min(left or 0, rows + keys),
        CAUSAL=p.causal is not None, LEFT=left is not None, LENGTHS=p.key_lengths is not None,
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False, **sizes,
    )  # fmt: skip
    return o, lse


SUBJECT = block_pointers

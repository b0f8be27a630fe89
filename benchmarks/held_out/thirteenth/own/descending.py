"""Attention in Triton whose programs walk the keys from the last step to the first, written for this set: only the first steps are masked.

`[B, H, S, D]`, exponentials to base 2, natural LSE, forward only. It takes groups of heads, causal masks of both alignments, the left side
of a window, key lengths and a softcap.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject


@triton.jit
def rows_of(ptr, at, limit, channels, C: tl.constexpr):
    """The rows `at` of a contiguous head, `[len(at), C]`; 0 from `limit` on and behind `channels`."""
    c = tl.arange(0, C)[None, :]
    keep = (at >= 0)[:, None] & (at < limit)[:, None] & (c < channels)
    return tl.load(ptr + at[:, None] * channels + c, mask=keep, other=0.0)


@triton.jit
def bent(x, cap):
    """`cap * tanh(x / cap)`."""
    size = tl.abs(x) / cap
    e = tl.exp2(-2.8853900817779268 * size)
    bend = tl.where(size < 0.03125, size - size * size * size * (1.0 / 3.0), (1.0 - e) / (1.0 + e))
    return tl.where(x < 0, -cap * bend, cap * bend)


@triton.jit
def descending_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale, cap, heads, group, rows, keys, d, dv, align_end, left,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, LENGTHS: tl.constexpr, CAPPED: tl.constexpr,
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
    q = rows_of(q_ptr + head * d, i, rows, d, C)
    k_ptr += hk * keys * d
    v_ptr += hk * keys * dv

    stop = tl.minimum(first + BLOCK + shift, n) if CAUSAL else n
    begin = tl.maximum(first + shift - left, 0) // STEP if LEFT else 0
    last = tl.cdiv(tl.maximum(stop, 0), STEP) - 1
    count = tl.maximum(last - begin + 1, 0)
    masking = tl.cdiv(BLOCK, STEP) + 1 if CAUSAL else 1  # steps that the diagonal, or the end of the keys, may cut

    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    for t in range(count):
        j = (last - t) * STEP + tl.arange(0, STEP)
        k = rows_of(k_ptr, j, n, d, C)
        v = rows_of(v_ptr, j, n, dv, CV)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if CAPPED:
            s = bent(s, cap)
        z = s * 1.4426950408889634
        if LEFT:
            see = (j < n)[None, :] & (j[None, :] >= i[:, None] + shift - left)
            if CAUSAL:
                see = see & (j[None, :] <= i[:, None] + shift)
            z = tl.where(see, z, float("-inf"))
        elif t < masking:
            see = (j < n)[None, :] & (i >= 0)[:, None]
            if CAUSAL:
                see = see & (j[None, :] <= i[:, None] + shift)
            z = tl.where(see, z, float("-inf"))
        m_new = tl.maximum(m, tl.max(z, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(z - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    divisor = tl.where(total == 0.0, 1.0, total)
    c = tl.arange(0, CV)[None, :]
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + (head + i)[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv))
    tl.store(lse_ptr + head + i, (m + tl.log2(divisor)) * 0.6931471805599453, mask=i < rows)


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        window_sides=("left",),
        logits=("softcap",),
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
)
def descending(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), (kv_heads, keys, dv) = q.shape, v.shape[1:]
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    left = None if p.window is None else p.window[0]
    sizes = {"BLOCK": 32, "STEP": 32} | dict(p.case.launch or ())
    descending_kernel[(triton.cdiv(rows, sizes["BLOCK"]), batch * heads)](
        q, k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, p.scale, p.softcap or 1.0,
        heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"), min(left or 0, rows + keys),
        CAUSAL=p.causal is not None, LEFT=left is not None, LENGTHS=p.key_lengths is not None, CAPPED=p.softcap is not None,
        C=max(16, triton.next_power_of_2(d)), CV=max(16, triton.next_power_of_2(dv)), enable_fp_fusion=False, **sizes,
    )  # fmt: skip
    return o, lse


SUBJECT = descending

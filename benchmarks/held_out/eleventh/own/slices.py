"""Attention in Triton whose programs have a slice of the values each, written for this set: products of wide heads are summed chunk by chunk.

`[B, H, S, D]`, natural exponentials, forward only. It takes groups of heads, causal masks and key lengths.
"""

import torch
import triton
import triton.language as tl

from flashverify import Supports, subject

BLOCK, CHUNK, SLICE = 16, 32, 32


@triton.jit
def part_of(ptr, at, limit, channels, first, C: tl.constexpr):
    """The channels from `first` on of the rows `at` of a contiguous head, `[len(at), C]`; 0 behind `limit` and `channels`."""
    c = first + tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < limit)[:, None] & (c < channels), other=0.0)


@triton.jit
def sliced_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale, heads, group, rows, keys, d, dv, align_end,
    CAUSAL: tl.constexpr, LENGTHS: tl.constexpr,
    BLOCK: tl.constexpr, STEP: tl.constexpr, CHUNK: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """O of a tile of rows and a slice of the channels of V; the first slice also has the natural LSE."""
    piece = tl.program_id(2)
    b, h = tl.program_id(1) // heads, tl.program_id(1) % heads
    hk = (b * (heads // group) + h // group).to(tl.int64)
    n = keys
    if LENGTHS:
        n = tl.load(lengths_ptr + b)
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    shift = align_end * (n - rows)
    head = tl.program_id(1).to(tl.int64) * rows
    q_ptr += head * d
    k_ptr += hk * keys * d
    v_ptr += hk * keys * dv

    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, SLICE], tl.float32)
    stop = n
    if CAUSAL:
        stop = tl.minimum(first + BLOCK + shift, n)
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        dot = tl.zeros([BLOCK, STEP], tl.float32)
        for chunk in range(0, d, CHUNK):
            q = part_of(q_ptr, i, rows, d, chunk, CHUNK)
            k = part_of(k_ptr, j, n, d, chunk, CHUNK)
            dot += tl.dot(q, tl.trans(k), input_precision="ieee")
        see = (j < n)[None, :] & (i < rows)[:, None]
        if CAUSAL:
            see = see & (j[None, :] <= i[:, None] + shift)
        s = tl.where(see, dot * scale, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - pivot[:, None])
        alpha = tl.exp(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        v = part_of(v_ptr, j, n, dv, piece * SLICE, SLICE)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new

    divisor = tl.where(total == 0.0, 1.0, total)
    c = piece * SLICE + tl.arange(0, SLICE)[None, :]
    o = (acc / divisor[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + (head + i)[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv))
    tl.store(lse_ptr + head + i, m + tl.log(divisor), mask=(i < rows) & (piece == 0))


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        scales=("default", "positive", "negative"),
        backward=False,
        launch=(("STEP", (32, 16, 64)),),
    ),
)
def slices(p):
    """The adapter."""
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    (batch, heads, rows, d), (kv_heads, keys, dv) = q.shape, v.shape[1:]
    o = torch.empty(batch, heads, rows, dv, dtype=q.dtype, device=q.device)
    lse = torch.empty(batch, heads, rows, device=q.device)
    sliced_kernel[(triton.cdiv(rows, BLOCK), batch * heads, triton.cdiv(dv, SLICE))](
        q, k, v, o, lse, lse if p.key_lengths is None else p.key_lengths, p.scale,
        heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"),
        CAUSAL=p.causal is not None, LENGTHS=p.key_lengths is not None,
        BLOCK=BLOCK, STEP=dict(p.case.launch or ()).get("STEP", 32), CHUNK=CHUNK, SLICE=SLICE, enable_fp_fusion=False,
    )  # fmt: skip
    return o, lse


SUBJECT = slices

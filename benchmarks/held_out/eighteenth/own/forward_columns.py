"""Attention in Triton that computes logits of keys by rows, transposed, written for this set; tiles of keys add their shares to dQ.

Tensors of any strides, exponentials to base 2. It takes groups of heads, a causal mask of either alignment, a prefix that all rows see, key
lengths and slopes.
"""

import math

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

LOG2_E = math.log2(math.e)


@triton.jit
def tile(ptr, head_step, row_step, at, n, channels, C: tl.constexpr):
    """The rows `at` of `n` from the head at `head_step` on, `[len(at), C]`; 0 outside."""
    c = tl.arange(0, C)[None, :]
    ptrs = ptr + head_step + at.to(tl.int64)[:, None] * row_step + c
    return tl.load(ptrs, mask=(at < n)[:, None] & (c < channels), other=0.0)


@triton.jit
def extent(lengths_ptr, prefix_ptr, b, rows, keys, align):
    """How many keys of a sequence count, how far the diagonal lies behind the row, and the keys of the prefix."""
    n = keys
    if lengths_ptr is not None:
        n = tl.load(lengths_ptr + b)
    prefix = 0
    if prefix_ptr is not None:
        prefix = tl.minimum(tl.load(prefix_ptr + b), n)
    return n, align * (n - rows), prefix


@triton.jit
def columns(k, q, slope, i, j, rows, n, shift, prefix, scale2, CAUSAL: tl.constexpr):
    """Base-2 logits of keys by rows, `[len(j), len(i)]`, and which pairs take part."""
    z = tl.dot(k, tl.trans(q), input_precision="ieee") * scale2
    z -= slope * tl.abs(i[None, :] + shift - j[:, None]).to(tl.float32)
    see = (j < n)[:, None] & (i < rows)[None, :]
    if CAUSAL:
        see = see & ((j[:, None] <= i[None, :] + shift) | (j < prefix)[:, None])
    return z, see


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, slopes_ptr, lengths_ptr, prefix_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    scale2, heads, group, rows, keys, d, dv, align,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the base-2 LSE of a tile of rows of a query head, both contiguous."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    hk = h // group
    n, shift, prefix = extent(lengths_ptr, prefix_ptr, b, rows, keys, align)
    slope = 0.0
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + h) * 1.4426950408889634
    i = first + tl.arange(0, BLOCK)
    q = tile(q_ptr, b * q_batch + h * q_head, q_row, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([CV, BLOCK], tl.float32)
    stop = n
    if CAUSAL:
        stop = tl.minimum(n, tl.maximum(first + BLOCK + shift, prefix))
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = tile(k_ptr, b * k_batch + hk * k_head, k_row, j, n, d, C)
        v = tile(v_ptr, b * v_batch + hk * v_head, v_row, j, n, dv, CV)
        z, see = columns(k, q, slope, i, j, rows, n, shift, prefix, scale2, CAUSAL)
        z = tl.where(see, z, float("-inf"))
        m_new = tl.maximum(m, tl.max(z, 0))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(z - pivot[None, :])
        alpha = tl.exp2(m - pivot)
        total = total * alpha + tl.sum(p, 0)
        acc = acc * alpha[None, :] + tl.dot(tl.trans(v), p.to(v.dtype), input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    c = tl.arange(0, CV)[None, :]
    o_ptrs = o_ptr + (bh * rows + i)[:, None] * dv + c
    o = tl.trans(acc / divisor[None, :]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptrs, o, mask=(i < rows)[:, None] & (c < dv))
    tl.store(lse_ptr + bh * rows + i, m + tl.log2(divisor), mask=i < rows)


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, slopes_ptr, lengths_ptr, prefix_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    scale, scale2, heads, group, rows, keys, d, dv, align,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """DK and dV of a tile of keys of a kv head, and its shares of dQ, added in fp32; dO, dQ, dK and dV are contiguous."""
    start = tl.program_id(0) * STEP
    kv = tl.program_id(1).to(tl.int64)
    kv_heads = heads // group
    b, hk = kv // kv_heads, kv % kv_heads
    n, shift, prefix = extent(lengths_ptr, prefix_ptr, b, rows, keys, align)
    j = start + tl.arange(0, STEP)
    k = tile(k_ptr, b * k_batch + hk * k_head, k_row, j, n, d, C)
    v = tile(v_ptr, b * v_batch + hk * v_head, v_row, j, n, dv, CV)
    dk = tl.zeros([STEP, C], tl.float32)
    dv_sum = tl.zeros([STEP, CV], tl.float32)
    begin = 0
    if CAUSAL:
        begin = tl.where(start < prefix, 0, tl.maximum(start - shift, 0) // BLOCK * BLOCK)
    c = tl.arange(0, C)[None, :]
    c_v = tl.arange(0, CV)[None, :]
    for member in range(group):
        h = hk * group + member
        bh = b * heads + h
        slope = 0.0
        if slopes_ptr is not None:
            slope = tl.load(slopes_ptr + h) * 1.4426950408889634
        for first in range(begin, rows, BLOCK):
            i = first + tl.arange(0, BLOCK)
            q = tile(q_ptr, b * q_batch + h * q_head, q_row, i, rows, d, C)
            do = tile(do_ptr, bh * rows * dv, dv, i, rows, dv, CV)
            lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[None, :]
            delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[None, :]
            z, see = columns(k, q, slope, i, j, rows, n, shift, prefix, scale2, CAUSAL)
            p = tl.where(see, tl.exp2(z - lse), 0.0)
            dv_sum += tl.dot(p.to(do.dtype), do, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            ds = tl.where(see, p * (dp - delta), 0.0).to(q.dtype)
            dk += tl.dot(ds, q, input_precision="ieee")
            share = tl.dot(tl.trans(ds), k, input_precision="ieee") * scale
            tl.atomic_add(dq_ptr + (bh * rows + i)[:, None] * d + c, share, mask=(i < rows)[:, None] & (c < d))
    dk_ptrs = dk_ptr + (kv * keys + j)[:, None] * d + c
    tl.store(dk_ptrs, (dk * scale).to(dk_ptr.dtype.element_ty), mask=(j < keys)[:, None] & (c < d))
    dv_ptrs = dv_ptr + (kv * keys + j)[:, None] * dv + c_v
    tl.store(dv_ptrs, dv_sum.to(dv_ptr.dtype.element_ty), mask=(j < keys)[:, None] & (c_v < dv))


def call_of(p):
    """The tables, the strides, the sizes and the constants."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    slopes = None if p.slopes is None else p.slopes.contiguous()
    tables = slopes, p.key_lengths, p.prefix_lengths
    steps = [step for x in (p.q, p.k, p.v) for step in x.stride()[:3]]
    sizes = heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right")
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"CAUSAL": p.causal is not None, "BLOCK": 32, "STEP": 32, "C": room, "CV": room_v}
    return tables, steps, sizes, constants | {"enable_fp_fusion": False} | dict(p.case.launch or ())


def gradients(p, found):
    """The gradients of q, k and v from the O and the LSE that the forward returned."""
    tables, steps, sizes, constants = call_of(p)
    do = p.do.contiguous()
    delta = (found.o.float() * do.float()).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse
    dq = torch.zeros(p.q.shape, dtype=torch.float32, device=p.q.device)
    dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (p.k, p.v))
    grid = triton.cdiv(p.k.shape[2], constants["STEP"]), p.k.shape[0] * p.k.shape[1]
    rest = found.saved, delta.contiguous(), *tables, *steps, p.scale, p.scale * LOG2_E
    backward_kernel[grid](p.q, p.k, p.v, do, dq, dk, dv, *rest, *sizes, **constants)
    return {"dq": dq.to(p.q.dtype), "dk": dk, "dv": dv}


@subject(
    supports=Supports(
        masks=("causal", "prefix_lengths", "key_lengths"),
        logits=("alibi",),
        scales=("default", "positive", "negative"),
        wild_slopes=False,
        dlse=True,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=True),
    backward=gradients,
)
def forward_columns(p):
    """The adapter."""
    tables, steps, sizes, constants = call_of(p)
    o = torch.empty(*p.q.shape[:3], p.v.shape[3], dtype=p.q.dtype, device=p.q.device)
    lse = torch.empty(p.q.shape[:3], dtype=torch.float32, device=p.q.device)
    grid = triton.cdiv(p.q.shape[2], constants["BLOCK"]), p.q.shape[0] * p.q.shape[1]
    forward_kernel[grid](p.q, p.k, p.v, o, lse, *tables, *steps, p.scale * LOG2_E, *sizes, **constants)
    return Forward(o, lse / LOG2_E, lse)


SUBJECT = forward_columns

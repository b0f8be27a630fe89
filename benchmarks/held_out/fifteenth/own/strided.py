"""Attention in Triton by plain pointers and the strides that tensors come with, forward and backward, written for this set.

`[B, H, S, D]` with any strides but the last; exponentials to base 2. It takes groups of heads, causal masks of both alignments, the left side of
a window and key lengths.
"""

import math

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

LOG2_E = math.log2(math.e)


@triton.jit
def fetch(ptr, row, at, n, channels, C: tl.constexpr):
    """The rows `at` of `n`, which lie `row` elements apart, `[len(at), C]`; 0 outside."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at.to(tl.int64)[:, None] * row + c, mask=(at < n)[:, None] & (c < channels), other=0.0)


@triton.jit
def keep(ptr, row, at, n, channels, x, C: tl.constexpr):
    """Stores rows, rounded to the type of the tensor."""
    c = tl.arange(0, C)[None, :]
    x = x.to(ptr.dtype.element_ty)
    tl.store(ptr + at.to(tl.int64)[:, None] * row + c, x, mask=(at < n)[:, None] & (c < channels))


@triton.jit
def seen(i, j, rows, n, shift, left, CAUSAL: tl.constexpr, LEFT: tl.constexpr):
    """Which pairs take part."""
    see = (i < rows) & (j < n)
    if CAUSAL:
        see = see & (j <= i + shift)
    if LEFT:
        see = see & (j >= i + shift - left)
    return see


@triton.jit
def keys_of(first, n, shift, left, BLOCK: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, LEFT: tl.constexpr):
    """Where the walk of a tile of rows over the keys begins and ends."""
    begin = tl.maximum(first + shift - left, 0) // STEP * STEP if LEFT else 0
    stop = tl.minimum(n, first + BLOCK + shift) if CAUSAL else n
    return begin, stop


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, lengths_ptr, scale2, heads, group, rows, keys, d, dv, align_end, left,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O, contiguous, and the base-2 LSE of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    shift = align_end * (n - rows)
    i = first + tl.arange(0, BLOCK)
    q = fetch(q_ptr + b * q_batch + h * q_head, q_row, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    begin, stop = keys_of(first, n, shift, left, BLOCK, STEP, CAUSAL, LEFT)
    for start in range(begin, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = fetch(k_ptr + b * k_batch + h // group * k_head, k_row, j, n, d, C)
        v = fetch(v_ptr + b * v_batch + h // group * v_head, v_row, j, n, dv, CV)
        z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
        z = tl.where(seen(i[:, None], j[None, :], rows, n, shift, left, CAUSAL, LEFT), z, float("-inf"))
        m_new = tl.maximum(m, tl.max(z, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(z - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    keep(o_ptr + bh * rows * dv, dv, i, rows, dv, acc / divisor[:, None], CV)
    tl.store(lse_ptr + bh * rows + i, m + tl.log2(divisor), mask=i < rows)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, lengths_ptr, scale, scale2, heads, group, rows, keys, d, dv,
    align_end, left, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """Write dQ, contiguous, of a tile of rows."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    shift = align_end * (n - rows)
    i = first + tl.arange(0, BLOCK)
    q = fetch(q_ptr + b * q_batch + h * q_head, q_row, i, rows, d, C)
    do = fetch(do_ptr + bh * rows * dv, dv, i, rows, dv, CV)
    lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
    delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
    dq = tl.zeros([BLOCK, C], tl.float32)
    begin, stop = keys_of(first, n, shift, left, BLOCK, STEP, CAUSAL, LEFT)
    for start in range(begin, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = fetch(k_ptr + b * k_batch + h // group * k_head, k_row, j, n, d, C)
        v = fetch(v_ptr + b * v_batch + h // group * v_head, v_row, j, n, dv, CV)
        see = seen(i[:, None], j[None, :], rows, n, shift, left, CAUSAL, LEFT)
        p = tl.where(see, tl.exp2(tl.dot(q, tl.trans(k), input_precision="ieee") * scale2 - lse), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = tl.where(see, p * (dp - delta), 0.0)
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    keep(dq_ptr + bh * rows * d, d, i, rows, d, dq * scale, C)


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, lengths_ptr, scale, scale2, heads, group, rows, keys, d, dv,
    align_end, left, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    CAUSAL: tl.constexpr, LEFT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """Write dK and dV, contiguous, of a tile of keys of a kv head."""
    first = tl.program_id(0) * STEP
    bh = tl.program_id(1).to(tl.int64)
    b, hk = bh // (heads // group), bh % (heads // group)
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    shift = align_end * (n - rows)
    j = first + tl.arange(0, STEP)
    k = fetch(k_ptr + b * k_batch + hk * k_head, k_row, j, n, d, C)
    v = fetch(v_ptr + b * v_batch + hk * v_head, v_row, j, n, dv, CV)
    dk = tl.zeros([STEP, C], tl.float32)
    dv_sum = tl.zeros([STEP, CV], tl.float32)
    begin = tl.maximum(first - shift, 0) // BLOCK * BLOCK if CAUSAL else 0
    stop = tl.minimum(rows, first + STEP - shift + left) if LEFT else rows
    for member in range(group):
        h = hk * group + member
        for start in range(begin, stop, BLOCK):
            i = start + tl.arange(0, BLOCK)
            q = fetch(q_ptr + b * q_batch + h * q_head, q_row, i, rows, d, C)
            do = fetch(do_ptr + (b * heads + h) * rows * dv, dv, i, rows, dv, CV)
            lse = tl.load(lse_ptr + (b * heads + h) * rows + i, mask=i < rows, other=0.0)[None, :]
            delta = tl.load(delta_ptr + (b * heads + h) * rows + i, mask=i < rows, other=0.0)[None, :]
            see = seen(i[None, :], j[:, None], rows, n, shift, left, CAUSAL, LEFT)
            p = tl.where(see, tl.exp2(tl.dot(k, tl.trans(q), input_precision="ieee") * scale2 - lse), 0.0)
            dv_sum += tl.dot(p.to(do.dtype), do, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            ds = tl.where(see, p * (dp - delta), 0.0)
            dk += tl.dot(ds.to(q.dtype), q, input_precision="ieee")
    there = (j < n)[:, None]  # hidden rows may hold anything
    keep(dk_ptr + bh * keys * d, d, j, keys, d, tl.where(there, dk * scale, 0.0), C)
    keep(dv_ptr + bh * keys * dv, dv, j, keys, dv, tl.where(there, dv_sum, 0.0), CV)


def call_of(p):
    """Sizes, strides and constants, which all kernels take."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    left = None if p.window is None else p.window[0]
    sizes = heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right"), min(left or 0, rows + keys)
    strides = [step for x in (p.q, p.k, p.v) for step in x.stride()[:3]]
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"CAUSAL": p.causal is not None, "LEFT": left is not None, "C": room, "CV": room_v}
    return (*sizes, *strides), constants | {"BLOCK": 32, "STEP": 32, "enable_fp_fusion": False} | dict(
        p.case.launch or ()
    )


def gradients(p, found):
    """The gradients of q, k and v from the O and the LSE that the forward returned."""
    sizes, constants = call_of(p)
    do = p.do.contiguous()
    delta = (found.o.float() * do.float()).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse
    delta = torch.where(found.saved == -torch.inf, 0.0, delta).contiguous()
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (p.q, p.k, p.v))
    rest = found.saved, delta, p.key_lengths, p.scale, p.scale * LOG2_E
    rows = triton.cdiv(p.q.shape[2], constants["BLOCK"]), p.q.shape[0] * p.q.shape[1]
    keys = triton.cdiv(p.k.shape[2], constants["STEP"]), p.k.shape[0] * p.k.shape[1]
    dq_kernel[rows](p.q, p.k, p.v, do, dq, *rest, *sizes, **constants)
    dkdv_kernel[keys](p.q, p.k, p.v, do, dk, dv, *rest, *sizes, **constants)
    return {"dq": dq, "dk": dk, "dv": dv}


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        window_sides=("left",),
        scales=("default", "positive", "negative"),
        dlse=True,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=True),
    backward=gradients,
)
def strided(p):
    """The adapter."""
    sizes, constants = call_of(p)
    o = torch.empty(*p.q.shape[:3], p.v.shape[3], dtype=p.q.dtype, device=p.q.device)
    lse = torch.empty(p.q.shape[:3], dtype=torch.float32, device=p.q.device)
    grid = triton.cdiv(p.q.shape[2], constants["BLOCK"]), p.q.shape[0] * p.q.shape[1]
    forward_kernel[grid](p.q, p.k, p.v, o, lse, p.key_lengths, p.scale * LOG2_E, *sizes, **constants)
    return Forward(o, lse / LOG2_E, lse)


SUBJECT = strided

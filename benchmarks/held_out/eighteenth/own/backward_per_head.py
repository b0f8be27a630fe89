"""Attention with ALiBi and windows in Triton whose backward stores dK and dV of every query head, written for this set: torch adds those of a group.

`[B, H, S, D]`, exponentials to base e, distances from the diagonal that starts at the first key. It takes groups of heads, slopes of ALiBi, windows
with either side, causal masks that start at the first key, and key lengths.
"""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

FAR = 1 << 30
"""A side of a window that hides nothing."""


@triton.jit
def rows_at(ptr, at, n, channels, C: tl.constexpr):
    """The rows `at` of `n` that lie one behind the other, `[len(at), C]`; 0 outside."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < n)[:, None] & (c < channels), other=0.0)


@triton.jit
def put_rows(ptr, at, n, channels, x, C: tl.constexpr):
    """Stores such rows, rounded to the type of the tensor."""
    c = tl.arange(0, C)[None, :]
    tl.store(ptr + at[:, None] * channels + c, x.to(ptr.dtype.element_ty), mask=(at < n)[:, None] & (c < channels))


@triton.jit
def seen(i, j, rows, n, left, right):
    """Which of the keys `j` the rows `i` see; the two broadcast."""
    return (i < rows) & (j < n) & (j >= i - left) & (j <= i + right)


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, slopes_ptr, lengths_ptr, scale, heads, group, rows, keys, d, dv, left, right,
    BLOCK: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the LSE of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    kv = b * (heads // group) + h // group
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)
    i = first + tl.arange(0, BLOCK)
    q = rows_at(q_ptr + bh * rows * d, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    begin = tl.maximum(first - left, 0) // BLOCK * BLOCK
    for start in range(begin, tl.minimum(n, first + BLOCK + right), BLOCK):
        j = start + tl.arange(0, BLOCK)
        k = rows_at(k_ptr + kv * keys * d, j, n, d, C)
        v = rows_at(v_ptr + kv * keys * dv, j, n, dv, CV)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if slopes_ptr is not None:
            s -= slope * tl.abs(i[:, None] - j[None, :]).to(tl.float32)
        s = tl.where(seen(i[:, None], j[None, :], rows, n, left, right), s, float("-inf"))
        higher = tl.maximum(m, tl.max(s, 1))
        pivot = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp(s - pivot[:, None])
        alpha = tl.exp(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = higher
    divisor = tl.where(total == 0.0, 1.0, total)
    put_rows(o_ptr + bh * rows * dv, i, rows, dv, acc / divisor[:, None], CV)
    tl.store(lse_ptr + bh * rows + i, m + tl.log(divisor), mask=i < rows)


@triton.jit
def score_tile(q, k, v, do, i, j, lse, delta, slope, scale, rows, n, left, right):
    """P and dS of the rows `i` and the keys `j`, `[len(i), len(j)]` fp32; 0 where a row does not see a key."""
    see = seen(i[:, None], j[None, :], rows, n, left, right)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    s -= slope * tl.abs(i[:, None] - j[None, :]).to(tl.float32)
    p = tl.where(see, tl.exp(s - lse[:, None]), 0.0)
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    return p, tl.where(see, p * (dp - delta[:, None]), 0.0)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, slopes_ptr, lengths_ptr, scale, heads, group, rows, keys,
    d, dv, left, right, BLOCK: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """DQ of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    kv = b * (heads // group) + h // group
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)
    i = first + tl.arange(0, BLOCK)
    q = rows_at(q_ptr + bh * rows * d, i, rows, d, C)
    do = rows_at(do_ptr + bh * rows * dv, i, rows, dv, CV)
    lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)
    delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)
    dq = tl.zeros([BLOCK, C], tl.float32)
    begin = tl.maximum(first - left, 0) // BLOCK * BLOCK
    for start in range(begin, tl.minimum(n, first + BLOCK + right), BLOCK):
        j = start + tl.arange(0, BLOCK)
        k = rows_at(k_ptr + kv * keys * d, j, n, d, C)
        v = rows_at(v_ptr + kv * keys * dv, j, n, dv, CV)
        _, ds = score_tile(q, k, v, do, i, j, lse, delta, slope, scale, rows, n, left, right)
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    put_rows(dq_ptr + bh * rows * d, i, rows, d, dq * scale, C)


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, slopes_ptr, lengths_ptr, scale, heads, group,
    rows, keys, d, dv, left, right, BLOCK: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """What a query head gives to dK and dV of a tile of keys, `[B, Hq, keys, channels]` fp32."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    kv = b * (heads // group) + h // group
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    slope = 0.0 if slopes_ptr is None else tl.load(slopes_ptr + h)
    j = first + tl.arange(0, BLOCK)
    k = rows_at(k_ptr + kv * keys * d, j, n, d, C)
    v = rows_at(v_ptr + kv * keys * dv, j, n, dv, CV)
    dk = tl.zeros([BLOCK, C], tl.float32)
    dv_sum = tl.zeros([BLOCK, CV], tl.float32)
    begin = tl.maximum(first - right, 0) // BLOCK * BLOCK
    for start in range(begin, tl.minimum(rows, first + BLOCK + left), BLOCK):
        i = start + tl.arange(0, BLOCK)
        q = rows_at(q_ptr + bh * rows * d, i, rows, d, C)
        do = rows_at(do_ptr + bh * rows * dv, i, rows, dv, CV)
        lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)
        delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)
        p, ds = score_tile(q, k, v, do, i, j, lse, delta, slope, scale, rows, n, left, right)
        dv_sum += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    there = (j < n)[:, None]
    put_rows(dk_ptr + bh * keys * d, j, keys, d, tl.where(there, dk * scale, 0.0), C)
    put_rows(dv_ptr + bh * keys * dv, j, keys, dv, tl.where(there, dv_sum, 0.0), CV)


def call_of(p):
    """The inputs, one row behind the other, the slopes, the sizes and the constants."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    left, right = p.window or (None, None)
    right = 0 if p.causal else right
    sides = (FAR if side is None else min(side, FAR) for side in (left, right))
    sizes = heads, heads // kv_heads, rows, keys, d, dv, *sides
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"BLOCK": 32, "C": room, "CV": room_v, "enable_fp_fusion": False} | dict(p.case.launch or ())
    slopes = None if p.slopes is None else p.slopes.contiguous()
    return [x.contiguous() for x in (p.q, p.k, p.v)], slopes, sizes, constants


def gradients(p, found):
    """The gradients of q, k and v from the O and the LSE that the forward returned."""
    (q, k, v), slopes, sizes, constants = call_of(p)
    heads, group, rows, keys = sizes[:4]
    do = p.do.contiguous()
    delta = (found.o.float() * do.float()).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse
    delta = delta.contiguous()
    dq = torch.empty_like(q)
    dk, dv = (torch.empty(*q.shape[:2], keys, x.shape[3], dtype=torch.float32, device=q.device) for x in (k, v))
    given = found.lse, delta, slopes, p.key_lengths, p.scale, *sizes
    count = q.shape[0] * heads
    dq_kernel[triton.cdiv(rows, constants["BLOCK"]), count](q, k, v, do, dq, *given, **constants)
    dkdv_kernel[triton.cdiv(keys, constants["BLOCK"]), count](q, k, v, do, dk, dv, *given, **constants)
    dk, dv = (x.unflatten(1, (heads // group, group)).sum(2).to(q.dtype) for x in (dk, dv))
    return {"dq": dq, "dk": dk, "dv": dv}


@subject(
    supports=Supports(
        masks=("causal", "window", "key_lengths"),
        causal=("top-left",),
        logits=("alibi",),
        wild_slopes=False,
        scales=("default", "positive", "negative"),
        dlse=True,
        launch=(("BLOCK", (32, 16, 64)),),
    ),
    contract=Contract(reads_outputs=True),
    backward=gradients,
)
def backward_per_head(p):
    """The adapter."""
    (q, k, v), slopes, sizes, constants = call_of(p)
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = triton.cdiv(q.shape[2], constants["BLOCK"]), q.shape[0] * q.shape[1]
    forward_kernel[grid](q, k, v, o, lse, slopes, p.key_lengths, p.scale, *sizes, **constants)
    return Forward(o, lse)


SUBJECT = backward_per_head

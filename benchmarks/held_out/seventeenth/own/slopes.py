"""Attention with ALiBi in Triton, forward and backward, written for this set: natural exponentials, dQ by rows, dK and dV by kv heads.

`[B, H, S, D]`. It takes groups of heads, key lengths, and causal masks that start at the first key or end at the last one that counts.
"""

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject


@triton.jit
def tile(ptr, at, end, channels, C: tl.constexpr):
    """The rows `at` of a head, `[len(at), C]`; 0 from `end` and from `channels` on."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < end)[:, None] & (c < channels), other=0.0)


@triton.jit
def put(ptr, at, end, channels, x, C: tl.constexpr):
    """Store the rows `at` of a head."""
    c = tl.arange(0, C)[None, :]
    there = (at < end)[:, None] & (c < channels)
    tl.store(ptr + at[:, None] * channels + c, x.to(ptr.dtype.element_ty), mask=there)


@triton.jit
def extent(lengths_ptr, b, rows, keys, AT_END: tl.constexpr):
    """The keys of a sequence that count, and how far its diagonal is moved."""
    count = keys
    if lengths_ptr is not None:
        count = tl.load(lengths_ptr + b)
    shift = count - rows if AT_END else 0
    return count, shift


@triton.jit
def scores(q, k, i, j, shift, scale, slope):
    """Logits of a tile in natural units."""
    far = tl.abs(i[:, None] + shift - j[None, :]).to(tl.float32)
    return tl.dot(q, tl.trans(k), input_precision="ieee") * scale - slope * far


@triton.jit
def seen(i, j, rows, count, shift, CAUSAL: tl.constexpr):
    """Which pairs take part."""
    see = (i < rows)[:, None] & (j < count)[None, :]
    if CAUSAL:
        see = see & (j[None, :] <= i[:, None] + shift)
    return see


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, slopes_ptr, lengths_ptr, scale, heads, group, rows, keys, d, dv,
    CAUSAL: tl.constexpr, AT_END: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the natural LSE of a tile of rows."""
    first = tl.program_id(0) * BM
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    kv = b * (heads // group) + h // group
    count, shift = extent(lengths_ptr, b, rows, keys, AT_END)
    slope = 0.0
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + h)
    i = first + tl.arange(0, BM)
    q = tile(q_ptr + bh * rows * d, i, rows, d, C)
    best = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, CV], tl.float32)
    stop = tl.minimum(count, first + BM + shift) if CAUSAL else count
    for start in range(0, stop, BN):
        j = start + tl.arange(0, BN)
        k = tile(k_ptr + kv * keys * d, j, count, d, C)
        v = tile(v_ptr + kv * keys * dv, j, count, dv, CV)
        see = seen(i, j, rows, count, shift, CAUSAL)
        s = tl.where(see, scores(q, k, i, j, shift, scale, slope), float("-inf"))
        higher = tl.maximum(best, tl.max(s, 1))
        pivot = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp(s - pivot[:, None])
        old = tl.exp(best - pivot)
        total = total * old + tl.sum(p, 1)
        acc = acc * old[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        best = higher
    divisor = tl.where(total == 0.0, 1.0, total)
    put(o_ptr + bh * rows * dv, i, rows, dv, acc / divisor[:, None], CV)
    tl.store(lse_ptr + bh * rows + i, best + tl.log(divisor), mask=i < rows)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, slopes_ptr, lengths_ptr, scale, heads, group, rows, keys,
    d, dv, CAUSAL: tl.constexpr, AT_END: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, C: tl.constexpr,
    CV: tl.constexpr,
):  # fmt: skip
    """DQ of a tile of rows."""
    first = tl.program_id(0) * BM
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    kv = b * (heads // group) + h // group
    count, shift = extent(lengths_ptr, b, rows, keys, AT_END)
    slope = 0.0
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + h)
    i = first + tl.arange(0, BM)
    q = tile(q_ptr + bh * rows * d, i, rows, d, C)
    do = tile(do_ptr + bh * rows * dv, i, rows, dv, CV)
    lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
    delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
    dq = tl.zeros([BM, C], tl.float32)
    stop = tl.minimum(count, first + BM + shift) if CAUSAL else count
    for start in range(0, stop, BN):
        j = start + tl.arange(0, BN)
        k = tile(k_ptr + kv * keys * d, j, count, d, C)
        v = tile(v_ptr + kv * keys * dv, j, count, dv, CV)
        see = seen(i, j, rows, count, shift, CAUSAL)
        p = tl.where(see, tl.exp(scores(q, k, i, j, shift, scale, slope) - lse), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = tl.where(see, p * (dp - delta), 0.0)
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    put(dq_ptr + bh * rows * d, i, rows, d, dq * scale, C)


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, slopes_ptr, lengths_ptr, scale, heads, group, rows,
    keys, d, dv, CAUSAL: tl.constexpr, AT_END: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, C: tl.constexpr,
    CV: tl.constexpr,
):  # fmt: skip
    """DK and dV of a tile of keys of a kv head, over all heads of its group."""
    start = tl.program_id(0) * BN
    kv = tl.program_id(1).to(tl.int64)
    kv_heads = heads // group
    b, hk = kv // kv_heads, kv % kv_heads
    count, shift = extent(lengths_ptr, b, rows, keys, AT_END)
    j = start + tl.arange(0, BN)
    k = tile(k_ptr + kv * keys * d, j, count, d, C)
    v = tile(v_ptr + kv * keys * dv, j, count, dv, CV)
    dk = tl.zeros([BN, C], tl.float32)
    dv_sum = tl.zeros([BN, CV], tl.float32)
    begin = tl.maximum(start - shift, 0) // BM * BM if CAUSAL else 0
    for member in range(group):
        h = hk * group + member
        bh = b * heads + h
        slope = 0.0
        if slopes_ptr is not None:
            slope = tl.load(slopes_ptr + h)
        for first in range(begin, rows, BM):
            i = first + tl.arange(0, BM)
            q = tile(q_ptr + bh * rows * d, i, rows, d, C)
            do = tile(do_ptr + bh * rows * dv, i, rows, dv, CV)
            lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
            delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
            see = seen(i, j, rows, count, shift, CAUSAL)
            p = tl.where(see, tl.exp(scores(q, k, i, j, shift, scale, slope) - lse), 0.0)
            dp = tl.dot(do, tl.trans(v), input_precision="ieee")
            ds = tl.where(see, p * (dp - delta), 0.0)
            dv_sum += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
            dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    put(dk_ptr + kv * keys * d, j, keys, d, dk * scale, C)
    put(dv_ptr + kv * keys * dv, j, keys, dv, dv_sum, CV)


def call_of(p):
    """The inputs, one row behind the other, the tables, the sizes and the constants."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    slopes = None if p.slopes is None else p.slopes.contiguous()
    sizes = heads, heads // kv_heads, rows, keys, d, dv
    constants = {"CAUSAL": p.causal is not None, "AT_END": p.causal == "bottom-right", "BM": 32, "BN": 32}
    constants |= {name: max(16, triton.next_power_of_2(x)) for name, x in (("C", d), ("CV", dv))}
    constants |= {"enable_fp_fusion": False} | dict(p.case.launch or ())
    return [x.contiguous() for x in (p.q, p.k, p.v)], (slopes, p.key_lengths, p.scale), sizes, constants


def gradients(p, found):
    """The gradients of q, k and v from the O and the LSE that the forward returned."""
    (q, k, v), terms, sizes, constants = call_of(p)
    do = p.do.contiguous()
    delta = (found.o.float() * do.float()).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse
    statistics = found.lse, delta.contiguous()
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    rows, keys = triton.cdiv(q.shape[2], constants["BM"]), triton.cdiv(k.shape[2], constants["BN"])
    dq_kernel[(rows, q.shape[0] * q.shape[1])](q, k, v, do, dq, *statistics, *terms, *sizes, **constants)
    dkdv_kernel[(keys, k.shape[0] * k.shape[1])](q, k, v, do, dk, dv, *statistics, *terms, *sizes, **constants)
    return {"dq": dq, "dk": dk, "dv": dv}


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("alibi",),
        scales=("default", "positive", "negative"),
        dlse=True,
        launch=(("BM", (32, 16, 64)), ("BN", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=True),
    backward=gradients,
)
def slopes(p):
    """The adapter."""
    (q, k, v), terms, sizes, constants = call_of(p)
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = triton.cdiv(q.shape[2], constants["BM"]), q.shape[0] * q.shape[1]
    forward_kernel[grid](q, k, v, o, lse, *terms, *sizes, **constants)
    return Forward(o, lse)


SUBJECT = slopes

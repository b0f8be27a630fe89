"""Attention with sinks in Triton whose backward walks the keys once, written for this set: each tile of keys stores its share of dQ, and torch adds them.

`[B, H, S, D]`, exponentials to base 2. The softmax of a row begins with its sink, so that a row without keys has it for its LSE. It takes
groups of heads, causal masks of both alignments and key lengths.
"""

import math

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

LOG2_E = math.log2(math.e)


@triton.jit
def tile(ptr, at, n, channels, C: tl.constexpr):
    """Pointers to the rows `at` of `n`, which lie one behind the other, and which of them exist, `[len(at), C]`."""
    c = tl.arange(0, C)[None, :]
    return ptr + at[:, None] * channels + c, (at < n)[:, None] & (c < channels)


@triton.jit
def fetch(ptr, at, n, channels, C: tl.constexpr):
    """These rows; 0 outside."""
    ptrs, there = tile(ptr, at, n, channels, C)
    return tl.load(ptrs, mask=there, other=0.0)


@triton.jit
def keep(ptr, at, n, channels, x, C: tl.constexpr):
    """Stores rows, rounded to the type of the tensor."""
    ptrs, there = tile(ptr, at, n, channels, C)
    tl.store(ptrs, x.to(ptr.dtype.element_ty), mask=there)


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, sink_ptr, lengths_ptr, scale2, heads, group, rows, keys, d, dv, align_end,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the base-2 LSE of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    shift = align_end * (n - rows)
    i = first + tl.arange(0, BLOCK)
    kv = b * (heads // group) + h // group
    q = fetch(q_ptr + bh * rows * d, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    if sink_ptr is not None:
        m = tl.full([BLOCK], 0.0, tl.float32) + tl.load(sink_ptr + h) * 1.4426950408889634
        total = tl.full([BLOCK], 1.0, tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    stop = tl.minimum(n, first + BLOCK + shift) if CAUSAL else n
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = fetch(k_ptr + kv * keys * d, j, n, d, C)
        v = fetch(v_ptr + kv * keys * dv, j, n, dv, CV)
        z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
        see = (j < n)[None, :]
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
    keep(o_ptr + bh * rows * dv, i, rows, dv, acc / divisor[:, None], CV)
    tl.store(lse_ptr + bh * rows + i, m + tl.log2(divisor), mask=i < rows)


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, shares_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, lengths_ptr, scale, scale2, heads, group,
    rows, keys, d, dv, align_end,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """Write dK and dV of a tile of keys, and what it gives to dQ, `[tiles, B, H, rows, D]` in fp32."""
    share = tl.program_id(0).to(tl.int64)
    first = tl.program_id(0) * STEP
    kv = tl.program_id(1).to(tl.int64)
    kv_heads = heads // group
    b, hk = kv // kv_heads, kv % kv_heads
    n = keys if lengths_ptr is None else tl.load(lengths_ptr + b)
    shift = align_end * (n - rows)
    j = first + tl.arange(0, STEP)
    k = fetch(k_ptr + kv * keys * d, j, n, d, C)
    v = fetch(v_ptr + kv * keys * dv, j, n, dv, CV)
    dk = tl.zeros([STEP, C], tl.float32)
    dv_sum = tl.zeros([STEP, CV], tl.float32)
    begin = tl.maximum(first - shift, 0) // BLOCK * BLOCK if CAUSAL else 0
    for member in range(group):
        bh = b * heads + hk * group + member
        shares = shares_ptr + (share * tl.num_programs(1) * group + bh) * rows * d
        for start in range(begin, rows, BLOCK):
            i = start + tl.arange(0, BLOCK)
            q = fetch(q_ptr + bh * rows * d, i, rows, d, C)
            do = fetch(do_ptr + bh * rows * dv, i, rows, dv, CV)
            lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
            delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
            see = (i < rows)[:, None] & (j < n)[None, :]
            if CAUSAL:
                see = see & (j[None, :] <= i[:, None] + shift)
            z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
            p = tl.where(see, tl.exp2(z - lse), 0.0)
            dp = tl.dot(do, tl.trans(v), input_precision="ieee")
            ds = tl.where(see, p * (dp - delta), 0.0).to(q.dtype)
            dv_sum += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
            dk += tl.dot(tl.trans(ds), q, input_precision="ieee")
            keep(shares, i, rows, d, tl.dot(ds, k, input_precision="ieee"), C)
    there = (j < n)[:, None]  # hidden rows may hold anything
    keep(dk_ptr + kv * keys * d, j, keys, d, tl.where(there, dk * scale, 0.0), C)
    keep(dv_ptr + kv * keys * dv, j, keys, dv, tl.where(there, dv_sum, 0.0), CV)


def call_of(p):
    """The inputs, one row behind the other, the sizes and the constants."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    sizes = heads, heads // kv_heads, rows, keys, d, dv, int(p.causal == "bottom-right")
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"CAUSAL": p.causal is not None, "BLOCK": 32, "STEP": 32, "C": room, "CV": room_v}
    inputs = [x.contiguous() for x in (p.q, p.k, p.v)]
    return inputs, sizes, constants | {"enable_fp_fusion": False} | dict(p.case.launch or ())


def gradients(p, found):
    """The gradients of q, k, v and the sinks from the O and the LSE that the forward returned."""
    (q, k, v), sizes, constants = call_of(p)
    do = p.do.contiguous()
    delta = (found.o.float() * do.float()).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse
    delta = delta.contiguous()
    tiles = triton.cdiv(k.shape[2], constants["STEP"])
    shares = torch.zeros(tiles, *q.shape, dtype=torch.float32, device=q.device)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    backward_kernel[tiles, k.shape[0] * k.shape[1]](
        q, k, v, do, shares, dk, dv, found.saved, delta, p.key_lengths, p.scale, p.scale * LOG2_E, *sizes, **constants
    )
    gradients = {"dq": (shares.sum(0) * p.scale).to(q.dtype), "dk": dk, "dv": dv}
    if p.sink is not None:
        weight = torch.exp2(p.sink.double()[:, None] * LOG2_E - found.saved)
        gradients["dsink"] = -(weight * delta).sum((0, 2)).float()
    return gradients


@subject(
    supports=Supports(
        masks=("causal", "key_lengths"),
        logits=("sink",),
        scales=("default", "positive", "negative"),
        dlse=True,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(empty_row_lse="sink", reads_outputs=True, gradients=frozenset({"dq", "dk", "dv", "dsink"})),
    backward=gradients,
)
def shares(p):
    """The adapter."""
    (q, k, v), sizes, constants = call_of(p)
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    sink = None if p.sink is None else p.sink.contiguous()
    grid = triton.cdiv(q.shape[2], constants["BLOCK"]), q.shape[0] * q.shape[1]
    forward_kernel[grid](q, k, v, o, lse, sink, p.key_lengths, p.scale * LOG2_E, *sizes, **constants)
    return Forward(o, lse / LOG2_E, lse)


SUBJECT = shares

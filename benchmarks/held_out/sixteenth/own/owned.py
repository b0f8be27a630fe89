"""Attention with a bias in Triton whose backward has one program a kv head, written for this set: it owns dK and dV, whose sums lie in memory.

`[B, H, S, D]`, exponentials to base 2. It takes groups of heads, a causal mask that starts at the first key, both sides of a window, and a bias
that sequences and heads may share.
"""

import math

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

LOG2_E = math.log2(math.e)


@triton.jit
def place(ptr, at, n, channels, C: tl.constexpr):
    """Pointers to the rows `at` of `n` and which of them exist, `[len(at), C]`."""
    c = tl.arange(0, C)[None, :]
    return ptr + at[:, None] * channels + c, (at < n)[:, None] & (c < channels)


@triton.jit
def fetch(ptr, at, n, channels, C: tl.constexpr):
    """These rows; 0 outside."""
    ptrs, there = place(ptr, at, n, channels, C)
    return tl.load(ptrs, mask=there, other=0.0)


@triton.jit
def scores(q, k, bias_ptr, i, j, rows, keys, scale2):
    """Base-2 logits of a tile, with the bias of a plane `[rows, keys]`."""
    z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
    if bias_ptr is not None:
        there = (i < rows)[:, None] & (j < keys)[None, :]
        bias = tl.load(bias_ptr + i[:, None] * keys + j[None, :], mask=there, other=0.0)
        z += bias.to(tl.float32) * 1.4426950408889634
    return z


@triton.jit
def seen(i, j, rows, keys, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Which pairs take part; a causal mask is a right side of 0."""
    see = (i < rows)[:, None] & (j < keys)[None, :]
    if LEFT:
        see = see & (j[None, :] >= i[:, None] - left)
    if RIGHT:
        see = see & (j[None, :] <= i[:, None] + right)
    return see


@triton.jit
def walk(first, keys, left, right, BLOCK: tl.constexpr, STEP: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Where the walk of a tile of rows over the keys begins and ends."""
    begin = tl.maximum(first - left, 0) // STEP * STEP if LEFT else 0
    stop = tl.minimum(keys, first + BLOCK + right) if RIGHT else keys
    return begin, stop


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, bias_ptr, bias_batch, bias_head, scale2, heads, group, rows, keys, d, dv, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the base-2 LSE of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    bh = tl.program_id(1).to(tl.int64)
    b, h = bh // heads, bh % heads
    kv = b * (heads // group) + h // group
    if bias_ptr is not None:
        bias_ptr += b * bias_batch + h * bias_head
    i = first + tl.arange(0, BLOCK)
    q = fetch(q_ptr + bh * rows * d, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    begin, stop = walk(first, keys, left, right, BLOCK, STEP, LEFT, RIGHT)
    for start in range(begin, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = fetch(k_ptr + kv * keys * d, j, keys, d, C)
        v = fetch(v_ptr + kv * keys * dv, j, keys, dv, CV)
        see = seen(i, j, rows, keys, left, right, LEFT, RIGHT)
        z = tl.where(see, scores(q, k, bias_ptr, i, j, rows, keys, scale2), float("-inf"))
        m_new = tl.maximum(m, tl.max(z, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(z - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    ptrs, there = place(o_ptr + bh * rows * dv, i, rows, dv, CV)
    tl.store(ptrs, (acc / divisor[:, None]).to(o_ptr.dtype.element_ty), mask=there)
    tl.store(lse_ptr + bh * rows + i, m + tl.log2(divisor), mask=i < rows)


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, ds_ptr, lse_ptr, delta_ptr, bias_ptr, bias_batch, bias_head,
    scale, scale2, heads, group, rows, keys, d, dv, left, right,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """Write dQ of all rows of a kv head, add to its dK and dV in fp32, which are 0 before, and store dS, `[B, H, rows, keys]`."""
    kv = tl.program_id(0).to(tl.int64)
    kv_heads = heads // group
    b, hk = kv // kv_heads, kv % kv_heads
    for member in range(group):
        h = hk * group + member
        bh = b * heads + h
        plane = bias_ptr
        if bias_ptr is not None:
            plane = bias_ptr + b * bias_batch + h * bias_head
        for first in range(0, rows, BLOCK):
            i = first + tl.arange(0, BLOCK)
            q = fetch(q_ptr + bh * rows * d, i, rows, d, C)
            do = fetch(do_ptr + bh * rows * dv, i, rows, dv, CV)
            lse = tl.load(lse_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
            delta = tl.load(delta_ptr + bh * rows + i, mask=i < rows, other=0.0)[:, None]
            dq = tl.zeros([BLOCK, C], tl.float32)
            begin, stop = walk(first, keys, left, right, BLOCK, STEP, LEFT, RIGHT)
            for start in range(begin, stop, STEP):
                j = start + tl.arange(0, STEP)
                k = fetch(k_ptr + kv * keys * d, j, keys, d, C)
                v = fetch(v_ptr + kv * keys * dv, j, keys, dv, CV)
                see = seen(i, j, rows, keys, left, right, LEFT, RIGHT)
                p = tl.where(see, tl.exp2(scores(q, k, plane, i, j, rows, keys, scale2) - lse), 0.0)
                dp = tl.dot(do, tl.trans(v), input_precision="ieee")
                ds = tl.where(see, p * (dp - delta), 0.0)
                if ds_ptr is not None:
                    at = (bh * rows + i)[:, None] * keys + j[None, :]
                    tl.store(ds_ptr + at, ds, mask=(i < rows)[:, None] & (j < keys)[None, :])
                dk_ptrs, there = place(dk_ptr + kv * keys * d, j, keys, d, C)
                dk = tl.load(dk_ptrs, mask=there, other=0.0)
                dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee") * scale
                tl.store(dk_ptrs, dk, mask=there)
                dv_ptrs, there_v = place(dv_ptr + kv * keys * dv, j, keys, dv, CV)
                dv_sum = tl.load(dv_ptrs, mask=there_v, other=0.0)
                dv_sum += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
                tl.store(dv_ptrs, dv_sum, mask=there_v)
                dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
                tl.debug_barrier()  # the next tile of rows reads what this one has stored
            dq_ptrs, there_q = place(dq_ptr + bh * rows * d, i, rows, d, C)
            tl.store(dq_ptrs, (dq * scale).to(dq_ptr.dtype.element_ty), mask=there_q)


def call_of(p):
    """The inputs, one row behind the other, the bias with its strides, the sizes and the constants."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    left, right = p.window or (None, None)
    right = 0 if p.causal is not None else right
    sizes = heads, heads // kv_heads, rows, keys, d, dv, *(min(side or 0, rows + keys) for side in (left, right))
    bias = None if p.bias is None else p.bias.contiguous()
    steps = (
        (0, 0) if bias is None else (0 if n == 1 else x for n, x in zip(bias.shape[:2], bias.stride(), strict=False))
    )
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"LEFT": left is not None, "RIGHT": right is not None, "BLOCK": 32, "STEP": 32, "C": room, "CV": room_v}
    constants |= {"enable_fp_fusion": False} | dict(p.case.launch or ())
    return [x.contiguous() for x in (p.q, p.k, p.v)], (bias, *steps), sizes, constants


def gradients(p, found):
    """The gradients of q, k, v and the bias from the O and the LSE that the forward returned."""
    (q, k, v), bias, sizes, constants = call_of(p)
    do = p.do.contiguous()
    delta = (found.o.float() * do.float()).sum(-1)
    if p.dlse is not None:
        delta = delta - p.dlse
    delta = delta.contiguous()
    dq = torch.empty_like(q)
    dk, dv = (torch.zeros(x.shape, dtype=torch.float32, device=x.device) for x in (k, v))
    ds = None
    if p.bias is not None:
        ds = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float32, device=q.device)
    rest = found.saved, delta, *bias, p.scale, p.scale * LOG2_E
    backward_kernel[(k.shape[0] * k.shape[1],)](q, k, v, do, dq, dk, dv, ds, *rest, *sizes, **constants)
    gradients = {"dq": dq, "dk": dk.to(k.dtype), "dv": dv.to(v.dtype)}
    if ds is not None:
        shared = [axis for axis in (0, 1) if p.bias.shape[axis] == 1 != ds.shape[axis]]
        gradients["dbias"] = (ds.sum(shared, keepdim=True) if shared else ds).to(p.bias.dtype)
    return gradients


@subject(
    supports=Supports(
        masks=("causal", "window"),
        causal=("top-left",),
        logits=("bias",),
        scales=("default", "positive", "negative"),
        dlse=True,
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=True, gradients=frozenset({"dq", "dk", "dv", "dbias"})),
    backward=gradients,
)
def owned(p):
    """The adapter."""
    (q, k, v), bias, sizes, constants = call_of(p)
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = triton.cdiv(q.shape[2], constants["BLOCK"]), q.shape[0] * q.shape[1]
    forward_kernel[grid](q, k, v, o, lse, *bias, p.scale * LOG2_E, *sizes, **constants)
    return Forward(o, lse / LOG2_E, lse)


SUBJECT = owned

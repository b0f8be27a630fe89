"""Attention in Triton whose backward walks the rows once, written for this set: dQ is summed by atomic additions, in fp32.

`[B, H, S, D]`, exponentials to base 2. It takes groups of heads and causal masks of both alignments.
"""

import math

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

LOG2_E = math.log2(math.e)


@triton.jit
def rows_of(ptr, at, n, channels, C: tl.constexpr):
    """The rows `at` of a contiguous `[n, channels]`, `[len(at), C]`; 0 outside."""
    c = tl.arange(0, C)[None, :]
    return tl.load(ptr + at[:, None] * channels + c, mask=(at < n)[:, None] & (c < channels), other=0.0)


@triton.jit
def shown(i, j, rows, keys, shift, CAUSAL: tl.constexpr):
    """Which pairs take part."""
    see = (i < rows) & (j < keys)
    return see & (j <= i + shift) if CAUSAL else see


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale2, group, rows, keys, d, dv, shift,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the base-2 LSE of a tile of rows of a query head."""
    first = tl.program_id(0) * BLOCK
    h = tl.program_id(1).to(tl.int64)
    i = first + tl.arange(0, BLOCK)
    q = rows_of(q_ptr + h * rows * d, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    stop = tl.minimum(keys, first + BLOCK + shift) if CAUSAL else keys
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = rows_of(k_ptr + h // group * keys * d, j, keys, d, C)
        v = rows_of(v_ptr + h // group * keys * dv, j, keys, dv, CV)
        z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
        z = tl.where(shown(i[:, None], j[None, :], rows, keys, shift, CAUSAL), z, float("-inf"))
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
    tl.store(o_ptr + h * rows * dv + i[:, None] * dv + c, o, mask=(i < rows)[:, None] & (c < dv))
    tl.store(lse_ptr + h * rows + i, m + tl.log2(divisor), mask=i < rows)


@triton.jit
def backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, scale, scale2, group, rows, keys, d, dv, shift,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """Write dK and dV of a tile of keys of a kv head; its share of dQ is added to what is there."""
    n0 = tl.program_id(0) * STEP
    hk = tl.program_id(1).to(tl.int64)
    j = n0 + tl.arange(0, STEP)
    c, cv = tl.arange(0, C)[None, :], tl.arange(0, CV)[None, :]
    k = rows_of(k_ptr + hk * keys * d, j, keys, d, C)
    v = rows_of(v_ptr + hk * keys * dv, j, keys, dv, CV)
    dk = tl.zeros([STEP, C], tl.float32)
    dv_acc = tl.zeros([STEP, CV], tl.float32)
    begin = tl.maximum(n0 - shift, 0) // BLOCK * BLOCK if CAUSAL else 0
    for member in range(group):
        h = hk * group + member
        for m0 in range(begin, rows, BLOCK):
            i = m0 + tl.arange(0, BLOCK)
            q = rows_of(q_ptr + h * rows * d, i, rows, d, C)
            do = rows_of(do_ptr + h * rows * dv, i, rows, dv, CV)
            lse = tl.load(lse_ptr + h * rows + i, mask=i < rows, other=0.0)
            delta = tl.load(delta_ptr + h * rows + i, mask=i < rows, other=0.0)
            see = shown(i[None, :], j[:, None], rows, keys, shift, CAUSAL)
            z = tl.dot(k, tl.trans(q), input_precision="ieee") * scale2
            p = tl.where(see, tl.exp2(z - lse[None, :]), 0.0)
            dv_acc += tl.dot(p.to(do.dtype), do, input_precision="ieee")
            dp = tl.dot(v, tl.trans(do), input_precision="ieee")
            ds = tl.where(see, p * (dp - delta[None, :]), 0.0).to(q.dtype)
            dk += tl.dot(ds, q, input_precision="ieee")
            share = tl.dot(tl.trans(ds), k, input_precision="ieee") * scale
            at = dq_ptr + h * rows * d + i[:, None] * d + c
            tl.atomic_add(at, share, mask=(i < rows)[:, None] & (c < d))
    keep = (j < keys)[:, None]
    dk_at, dv_at = hk * keys * d + j[:, None] * d + c, hk * keys * dv + j[:, None] * dv + cv
    tl.store(dk_ptr + dk_at, (dk * scale).to(dk_ptr.dtype.element_ty), mask=keep & (c < d))
    tl.store(dv_ptr + dv_at, dv_acc.to(dv_ptr.dtype.element_ty), mask=keep & (cv < dv))


def shape_of(p):
    """Sizes and constants of both kernels."""
    (_, heads, rows, d), (_, kv_heads, keys, dv) = p.q.shape, p.v.shape
    sizes = heads // kv_heads, rows, keys, d, dv, keys - rows if p.causal == "bottom-right" else 0
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"CAUSAL": p.causal is not None, "C": room, "CV": room_v, "enable_fp_fusion": False}
    return sizes, constants | {"BLOCK": 32, "STEP": 32} | dict(p.case.launch or ())


def gradients(p, found):
    """dQ, dK and dV from the O and the LSE that the forward returned."""
    sizes, constants = shape_of(p)
    q, k, v, do = (x.contiguous() for x in (p.q, p.k, p.v, p.do))
    delta = (found.o.float() * do.float()).sum(-1).contiguous()
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    grid = triton.cdiv(sizes[2], constants["STEP"]), k.shape[0] * k.shape[1]
    given = q, k, v, do, found.saved, delta, dq, dk, dv
    backward_kernel[grid](*given, p.scale, p.scale * LOG2_E, *sizes, **constants)
    return {"dq": dq.to(q.dtype), "dk": dk, "dv": dv}


@subject(
    supports=Supports(
        masks=("causal",),
        scales=("default", "positive", "negative"),
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=True, deterministic=False),
    backward=gradients,
)
def atomic(p):
    """The adapter."""
    sizes, constants = shape_of(p)
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = triton.cdiv(sizes[1], constants["BLOCK"]), q.shape[0] * q.shape[1]
    forward_kernel[grid](q, k, v, o, lse, p.scale * LOG2_E, *sizes, **constants)
    return Forward(o, lse / LOG2_E, lse)


SUBJECT = atomic

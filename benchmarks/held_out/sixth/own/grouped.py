"""Attention with groups of heads in Triton, forward and backward, written for this set: `[B, H, S, D]`, exponentials to base 2.

It takes a causal mask that starts at the first key. The backward writes dK and dV of every query head; torch sums over each group.
"""

import math

import torch
import triton
import triton.language as tl

from flashverify import Contract, Forward, Supports, subject

LOG2_E = math.log2(math.e)


@triton.jit
def load(ptr, at, n, room, C: tl.constexpr):
    """The rows `at` of a contiguous `[n, room]`, `[len(at), C]`; 0 outside."""
    c = tl.arange(0, C)
    keep = (at < n)[:, None] & (c < room)[None, :]
    return tl.load(ptr + at[:, None] * room + c[None, :], mask=keep, other=0.0)


@triton.jit
def store(ptr, x, at, n, room, C: tl.constexpr):
    """Writes the rows `at` of a contiguous `[n, room]`."""
    c = tl.arange(0, C)
    keep = (at < n)[:, None] & (c < room)[None, :]
    tl.store(ptr + at[:, None] * room + c[None, :], x.to(ptr.dtype.element_ty), mask=keep)


@triton.jit
def shown(i, j, rows, keys, CAUSAL: tl.constexpr):
    """Which pairs take part."""
    see = (i < rows) & (j < keys)
    return see & (j <= i) if CAUSAL else see


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, scale2, group, rows, keys, d, dv,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """O and the base-2 LSE of a tile of rows of a query head."""
    tile = tl.program_id(0)
    h = tl.program_id(1).to(tl.int64)
    i = tile * BLOCK + tl.arange(0, BLOCK)
    q = load(q_ptr + h * rows * d, i, rows, d, C)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, CV], tl.float32)
    stop = tl.minimum(keys, (tile + 1) * BLOCK) if CAUSAL else keys
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = load(k_ptr + h // group * keys * d, j, keys, d, C)
        v = load(v_ptr + h // group * keys * dv, j, keys, dv, CV)
        z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
        z = tl.where(shown(i[:, None], j[None, :], rows, keys, CAUSAL), z, float("-inf"))
        m_new = tl.maximum(m, tl.max(z, 1))
        pivot = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(z - pivot[:, None])
        alpha = tl.exp2(m - pivot)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = m_new
    divisor = tl.where(total == 0.0, 1.0, total)
    store(o_ptr + h * rows * dv, acc / divisor[:, None], i, rows, dv, CV)
    tl.store(lse_ptr + h * rows + i, m + tl.log2(divisor), mask=i < rows)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, scale, scale2, group, rows, keys, d, dv,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """The dQ of a tile of rows of a query head."""
    tile = tl.program_id(0)
    h = tl.program_id(1).to(tl.int64)
    i = tile * BLOCK + tl.arange(0, BLOCK)
    q = load(q_ptr + h * rows * d, i, rows, d, C)
    do = load(do_ptr + h * rows * dv, i, rows, dv, CV)
    lse = tl.load(lse_ptr + h * rows + i, mask=i < rows, other=0.0)
    delta = tl.load(delta_ptr + h * rows + i, mask=i < rows, other=0.0)
    acc = tl.zeros([BLOCK, C], tl.float32)
    stop = tl.minimum(keys, (tile + 1) * BLOCK) if CAUSAL else keys
    for start in range(0, stop, STEP):
        j = start + tl.arange(0, STEP)
        k = load(k_ptr + h // group * keys * d, j, keys, d, C)
        v = load(v_ptr + h // group * keys * dv, j, keys, dv, CV)
        see = shown(i[:, None], j[None, :], rows, keys, CAUSAL)
        z = tl.dot(q, tl.trans(k), input_precision="ieee") * scale2
        p = tl.where(see, tl.exp2(z - lse[:, None]), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = tl.where(see, p * (dp - delta[:, None]), 0.0)
        acc += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    store(dq_ptr + h * rows * d, acc * scale, i, rows, d, C)


@triton.jit
def dkdv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, scale, scale2, group, rows, keys, d, dv,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
):  # fmt: skip
    """The share of a query head in dK and dV of a tile of keys, fp32."""
    tile = tl.program_id(0)
    h = tl.program_id(1).to(tl.int64)
    j = tile * STEP + tl.arange(0, STEP)
    k = load(k_ptr + h // group * keys * d, j, keys, d, C)
    v = load(v_ptr + h // group * keys * dv, j, keys, dv, CV)
    dk = tl.zeros([STEP, C], tl.float32)
    dv_acc = tl.zeros([STEP, CV], tl.float32)
    begin = tile * STEP // BLOCK * BLOCK if CAUSAL else 0
    for start in range(begin, rows, BLOCK):
        i = start + tl.arange(0, BLOCK)
        q = load(q_ptr + h * rows * d, i, rows, d, C)
        do = load(do_ptr + h * rows * dv, i, rows, dv, CV)
        lse = tl.load(lse_ptr + h * rows + i, mask=i < rows, other=0.0)
        delta = tl.load(delta_ptr + h * rows + i, mask=i < rows, other=0.0)
        see = shown(i[None, :], j[:, None], rows, keys, CAUSAL)
        z = tl.dot(k, tl.trans(q), input_precision="ieee") * scale2
        p = tl.where(see, tl.exp2(z - lse[None, :]), 0.0)
        dv_acc += tl.dot(p.to(do.dtype), do, input_precision="ieee")
        dp = tl.dot(v, tl.trans(do), input_precision="ieee")
        ds = tl.where(see, p * (dp - delta[None, :]), 0.0)
        dk += tl.dot(ds.to(q.dtype), q, input_precision="ieee")
    store(dk_ptr + h * keys * d, dk * scale, j, keys, d, C)
    store(dv_ptr + h * keys * dv, dv_acc, j, keys, dv, CV)


def shape_of(p):
    """Sizes and constants of all kernels."""
    (batch, heads, rows, d), keys, dv = p.q.shape, p.k.shape[2], p.v.shape[3]
    sizes = heads // p.k.shape[1], rows, keys, d, dv
    room, room_v = (max(16, triton.next_power_of_2(x)) for x in (d, dv))
    constants = {"CAUSAL": p.causal is not None, "C": room, "CV": room_v, "enable_fp_fusion": False}
    return batch * heads, sizes, constants | {"BLOCK": 32, "STEP": 32} | dict(p.case.launch or ())


def of_group(x, heads, like):
    """The sum over the query heads of each kv head, `[B, Hkv, keys, channels]`."""
    batch, kv_heads = like.shape[:2]
    return x.view(batch, kv_heads, heads // kv_heads, *x.shape[1:]).sum(2).to(like.dtype)


def gradients(p, found):
    """dQ, dK and dV from the O and the LSE that the forward returned."""
    heads, sizes, constants = shape_of(p)
    q, k, v, do = (x.contiguous() for x in (p.q, p.k, p.v, p.do))
    delta = (found.o.float() * do.float()).sum(-1)
    lse = found.saved
    dq = torch.empty_like(q)
    dk, dv = (torch.empty(heads, *x.shape[2:], dtype=torch.float32, device=q.device) for x in (k, v))
    shared = (p.scale, p.scale * LOG2_E, *sizes)
    dq_kernel[(triton.cdiv(sizes[1], constants["BLOCK"]), heads)](q, k, v, do, lse, delta, dq, *shared, **constants)
    tiles = triton.cdiv(sizes[2], constants["STEP"])
    dkdv_kernel[(tiles, heads)](q, k, v, do, lse, delta, dk, dv, *shared, **constants)
    return {"dq": dq, "dk": of_group(dk, q.shape[1], k), "dv": of_group(dv, q.shape[1], v)}


@subject(
    supports=Supports(
        masks=("causal",),
        causal=("top-left",),
        scales=("default", "positive"),
        launch=(("BLOCK", (32, 16, 64)), ("STEP", (32, 16, 64))),
    ),
    contract=Contract(reads_outputs=True),
    backward=gradients,
)
def grouped(p):
    """The adapter."""
    heads, sizes, constants = shape_of(p)
    q, k, v = (x.contiguous() for x in (p.q, p.k, p.v))
    o = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    tiles = triton.cdiv(sizes[1], constants["BLOCK"])
    forward_kernel[(tiles, heads)](q, k, v, o, lse, p.scale * LOG2_E, *sizes, **constants)
    return Forward(o, lse / LOG2_E, lse)


SUBJECT = grouped

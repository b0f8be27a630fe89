"""The memory-efficient backward (appendix B.2): a pass over the keys for dQ, a pass over the queries for dK and dV.

Delta is a sum over channels of dO and O, and nothing of the size of S is stored.
"""

import triton
import triton.language as tl

from flashverify_kernels.algorithms.tiles import head, key_count, load, logits, row_lse2, store
from flashverify_kernels.device.jit import kernel


@kernel
def delta_kernel(o_ptr, do_ptr, delta_ptr, sq: tl.int32, dv: tl.int32, BLOCK_M: tl.constexpr, BLOCK_DV: tl.constexpr):
    """Equation (4): delta = dO . O of one tile of rows, `[B heads, sq]` fp32, from the rounded O."""
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    o = load(head(o_ptr, n, sq, dv), i, sq, dv, BLOCK_DV)
    do = load(head(do_ptr, n, sq, dv), i, sq, dv, BLOCK_DV)
    tl.store(head(delta_ptr, n, sq, 1) + i, tl.sum(do.to(tl.float32) * o.to(tl.float32), 1), mask=i < sq)


@kernel
def query_gradient_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    m_ptr,
    l_ptr,
    delta_ptr,
    dq_ptr,
    lengths_ptr,
    scale,
    scale_log2,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    d: tl.int32,
    dv: tl.int32,
    align_end: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Equation (5): dQ of one tile of rows, `[B heads, sq, d]`. Arguments as in `paper_backward_kernel`."""
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    k_end = key_count(lengths_ptr, n // heads, sk)
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load(head(q_ptr, n, sq, d), i, sq, d, BLOCK_D)
    do = load(head(do_ptr, n, sq, dv), i, sq, dv, BLOCK_DV)
    lse2 = row_lse2(head(m_ptr, n, sq, 1), head(l_ptr, n, sq, 1), i, sq)
    delta = tl.load(head(delta_ptr, n, sq, 1) + i, mask=i < sq, other=0.0)
    k_ptr, v_ptr = head(k_ptr, n // group, sk, d), head(v_ptr, n // group, sk, dv)
    acc = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    for n0 in range(0, sk, BLOCK_N):
        j = n0 + tl.arange(0, BLOCK_N)
        k = load(k_ptr, j, k_end, d, BLOCK_D)
        v = load(v_ptr, j, k_end, dv, BLOCK_DV)
        z = logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL)
        _, ds = weights(z, lse2, do, v, delta)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision="ieee")
    store(head(dq_ptr, n, sq, d), acc * scale, i, sq, d, BLOCK_D)


@kernel
def key_gradient_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    m_ptr,
    l_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    lengths_ptr,
    scale,
    scale_log2,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    d: tl.int32,
    dv: tl.int32,
    align_end: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Equations (3) and (6): dK and dV of one tile of keys, over the heads of a group one after the other.

    One program per tile of keys of a (batch, kv head). Arguments as in `paper_backward_kernel`.
    """
    tiles = (sk + BLOCK_N - 1) // BLOCK_N
    hk = tl.program_id(0) // tiles
    k_end = key_count(lengths_ptr, hk * group // heads, sk)
    j = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    k = load(head(k_ptr, hk, sk, d), j, k_end, d, BLOCK_D)
    v = load(head(v_ptr, hk, sk, dv), j, k_end, dv, BLOCK_DV)
    dk_j = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
    dv_j = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
    for g in range(group):
        n = hk * group + g
        for m0 in range(0, sq, BLOCK_M):
            i = m0 + tl.arange(0, BLOCK_M)
            q = load(head(q_ptr, n, sq, d), i, sq, d, BLOCK_D)
            do = load(head(do_ptr, n, sq, dv), i, sq, dv, BLOCK_DV)
            lse2 = row_lse2(head(m_ptr, n, sq, 1), head(l_ptr, n, sq, 1), i, sq)
            delta = tl.load(head(delta_ptr, n, sq, 1) + i, mask=i < sq, other=0.0)
            z = logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL)
            p, ds = weights(z, lse2, do, v, delta)
            dv_j = tl.dot(tl.trans(p.to(do.dtype)), do, dv_j, input_precision="ieee")
            dk_j = tl.dot(tl.trans(ds.to(q.dtype)), q, dk_j, input_precision="ieee")
    store(head(dk_ptr, hk, sk, d), dk_j * scale, j, sk, d, BLOCK_D)
    store(head(dv_ptr, hk, sk, dv), dv_j, j, sk, dv, BLOCK_DV)


@triton.jit
def weights(z, lse2, do, v, delta):
    """P and dS = P (dO V^T - delta) of a tile, fp32; exact zeros where `z` is -inf."""
    see = z != float("-inf")
    p = tl.where(see, tl.exp2(z - lse2[:, None]), 0.0)
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    return p, tl.where(see, p * (dp - delta[:, None]), 0.0)

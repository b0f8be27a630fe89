"""FlashAttention in the paper's own order (Algorithms 1, 2, 4 and 5): keys outside, queries inside; O, l, m and dQ in memory."""

import triton.language as tl

from flashverify_kernels.algorithms.tiles import finite, kept, key_count, live, load, logits, place, row_lse2, store
from flashverify_kernels.device.jit import kernel


@kernel
def paper_forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    m_ptr,
    l_ptr,
    cu_q_ptr,
    cu_k_ptr,
    lengths_ptr,
    live_ptr,
    keep_scale,
    scale_log2,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    block_rows: tl.int32,
    block_keys: tl.int32,
    d: tl.int32,
    dv: tl.int32,
    align_end: tl.int32,
    seed: tl.uint64,
    offset: tl.uint32,
    threshold: tl.uint32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Algorithms 2 and 5, one program per (batch or packed sequence, query head); O, m and l hold 0, -inf and 0 before.

    The factor of dropout multiplies P V in fp32: of the weights it would shift the rounding of every largest one, 1, alike.
    Of a dead block nothing is loaded but the keys and values, which Algorithm 5 loads before it looks.

    Args:
        q_ptr: `[B heads, sq, d]`.
        k_ptr: `[B heads // group, sk, d]`.
        v_ptr: `[B heads // group, sk, dv]`.
        o_ptr: `[B heads, sq, dv]` fp32, read and written: normalised after every block of keys.
        m_ptr: `[B heads, sq]` fp32, read and written: running maximum, base 2.
        l_ptr: `[B heads, sq]` fp32, read and written: running sum.
        cu_q_ptr: `[n + 1]` int32 cumulative queries of packed sequences, which take the place of B with sq rows in all; or None.
        cu_k_ptr: `[n + 1]` int32 cumulative keys, likewise.
        lengths_ptr: `[B]` int32 key lengths, or None; not of packed sequences.
        live_ptr: `[B heads, ceil(sq / block_rows), ceil(sk / block_keys)]` uint8, 0 for a dead block; or None.
        keep_scale: what dropout multiplies the weights by that it keeps, 1 / (1 - p); or None without dropout.
        scale_log2: softmax scale times log2(e).
        heads: query heads.
        group: query heads per kv head.
        sq: queries.
        sk: keys.
        block_rows: queries per block of the pattern, a multiple of BLOCK_M.
        block_keys: keys per block of the pattern, a multiple of BLOCK_N.
        d: channels of q and k.
        dv: channels of v.
        align_end: 1 if a causal diagonal ends at the last key.
        seed: of dropout, 64 bits.
        offset: of dropout, 32 bits.
        threshold: first random word that dropout keeps.
        BLOCK_M: queries per tile, the paper's B_r.
        BLOCK_N: keys per tile, the paper's B_c.
        BLOCK_D: d rounded up to a power of two.
        BLOCK_DV: dv rounded up to a power of two.
        CAUSAL: whether there is a causal diagonal.
    """
    n = tl.program_id(0)
    first_q, rows = place(cu_q_ptr, n, heads, sq)
    first_k, keys = place(cu_k_ptr, n // group, heads // group, sk)
    k_end = key_count(lengths_ptr, n // heads, keys)
    q_ptr, o_ptr = q_ptr + first_q * d, o_ptr + first_q * dv
    k_ptr, v_ptr = k_ptr + first_k * d, v_ptr + first_k * dv
    m_ptr, l_ptr = m_ptr + first_q, l_ptr + first_q
    for n0 in range(0, keys, BLOCK_N):
        j = n0 + tl.arange(0, BLOCK_N)
        k = load(k_ptr, j, k_end, d, BLOCK_D)
        v = load(v_ptr, j, k_end, dv, BLOCK_DV)
        for m0 in range(0, rows, BLOCK_M):
            if live(live_ptr, n, m0, n0, block_rows, block_keys, sq, sk):
                i = m0 + tl.arange(0, BLOCK_M)
                q = load(q_ptr, i, rows, d, BLOCK_D)
                o = load(o_ptr, i, rows, dv, BLOCK_DV)
                m_i = tl.load(m_ptr + i, mask=i < rows, other=float("-inf"))
                l_i = tl.load(l_ptr + i, mask=i < rows, other=0.0)
                z = logits(q, k, i, j, k_end, rows, align_end, scale_log2, CAUSAL)
                m_ij = tl.max(z, 1)
                p = tl.exp2(z - finite(m_ij)[:, None])
                m_new = tl.maximum(m_i, m_ij)
                alpha = tl.exp2(m_i - finite(m_new))
                beta = tl.exp2(m_ij - finite(m_new))
                l_new = alpha * l_i + beta * tl.sum(p, 1)
                divisor = tl.where(l_new == 0.0, 1.0, l_new)
                if keep_scale is not None:
                    p = tl.where(kept(i, j, n, seed, offset, threshold), p, 0.0)
                pv = tl.dot(p.to(v.dtype), v, input_precision="ieee")
                if keep_scale is not None:
                    pv *= keep_scale
                o = ((l_i * alpha)[:, None] * o + beta[:, None] * pv) / divisor[:, None]
                store(o_ptr, o, i, rows, dv, BLOCK_DV)
                tl.store(m_ptr + i, m_new, mask=i < rows)
                tl.store(l_ptr + i, l_new, mask=i < rows)


@kernel
def paper_backward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    do_ptr,
    m_ptr,
    l_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    cu_q_ptr,
    cu_k_ptr,
    lengths_ptr,
    live_ptr,
    keep_scale,
    scale,
    scale_log2,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    block_rows: tl.int32,
    block_keys: tl.int32,
    d: tl.int32,
    dv: tl.int32,
    align_end: tl.int32,
    seed: tl.uint64,
    offset: tl.uint32,
    threshold: tl.uint32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Algorithm 4, of live blocks alone where there is a pattern, one program per (batch or packed sequence, kv head); dQ holds 0 before.

    P is exp2(z - (m + log2 l)) and not exp2(z - m) / l, the dK of a block gets its scale and dV its factor of dropout at the end, and a group's heads
    follow one another inside a block of keys.

    Arguments as in `paper_forward_kernel`, and:
        o_ptr: `[B heads, sq, dv]`, the rounded O.
        do_ptr: likewise, its gradient.
        dq_ptr: `[B heads, sq, d]` fp32, read and written.
        dk_ptr: `[B heads // group, sk, d]`, written.
        dv_ptr: `[B heads // group, sk, dv]`, written.
        scale: softmax scale.
    """
    hk = tl.program_id(0)
    first_k, keys = place(cu_k_ptr, hk, heads // group, sk)
    k_end = key_count(lengths_ptr, hk * group // heads, keys)
    k_ptr, v_ptr = k_ptr + first_k * d, v_ptr + first_k * dv
    dk_ptr, dv_ptr = dk_ptr + first_k * d, dv_ptr + first_k * dv
    for n0 in range(0, keys, BLOCK_N):
        j = n0 + tl.arange(0, BLOCK_N)
        k = load(k_ptr, j, k_end, d, BLOCK_D)
        v = load(v_ptr, j, k_end, dv, BLOCK_DV)
        dk_j = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
        dv_j = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
        for g in range(group):
            n = hk * group + g
            first_q, rows = place(cu_q_ptr, n, heads, sq)
            for m0 in range(0, rows, BLOCK_M):
                if live(live_ptr, n, m0, n0, block_rows, block_keys, sq, sk):
                    i = m0 + tl.arange(0, BLOCK_M)
                    q = load(q_ptr + first_q * d, i, rows, d, BLOCK_D)
                    o = load(o_ptr + first_q * dv, i, rows, dv, BLOCK_DV)
                    do = load(do_ptr + first_q * dv, i, rows, dv, BLOCK_DV)
                    dq = load(dq_ptr + first_q * d, i, rows, d, BLOCK_D)
                    lse2 = row_lse2(m_ptr + first_q, l_ptr + first_q, i, rows)
                    z = logits(q, k, i, j, k_end, rows, align_end, scale_log2, CAUSAL)
                    see = z != float("-inf")
                    p = tl.where(see, tl.exp2(z - lse2[:, None]), 0.0)
                    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
                    p_dropped = p
                    if keep_scale is not None:
                        keep = kept(i, j, n, seed, offset, threshold)
                        p_dropped = tl.where(keep, p, 0.0)
                        dp = tl.where(keep, dp * keep_scale, 0.0)
                    dv_j = tl.dot(tl.trans(p_dropped.to(do.dtype)), do, dv_j, input_precision="ieee")
                    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
                    ds = tl.where(see, p * (dp - delta[:, None]), 0.0).to(q.dtype)
                    dq += scale * tl.dot(ds, k, input_precision="ieee")
                    store(dq_ptr + first_q * d, dq, i, rows, d, BLOCK_D)
                    dk_j = tl.dot(tl.trans(ds), q, dk_j, input_precision="ieee")
        if keep_scale is not None:
            dv_j *= keep_scale
        store(dk_ptr, dk_j * scale, j, keys, d, BLOCK_D)
        store(dv_ptr, dv_j, j, keys, dv, BLOCK_DV)

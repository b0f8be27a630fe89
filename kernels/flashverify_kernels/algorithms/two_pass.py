"""The memory-efficient forward (appendix B.1): one pass over the keys for the normalisation, a second one for O."""

import triton.language as tl

from flashverify_kernels.algorithms.tiles import finite, head, key_count, load, logits, store
from flashverify_kernels.device.jit import kernel


@kernel
def statistics_kernel(
    q_ptr,
    k_ptr,
    m_ptr,
    l_ptr,
    lengths_ptr,
    scale_log2,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    d: tl.int32,
    align_end: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Equation (1) with the maximum taken out: m and l of one tile of rows. Arguments as in `paper_forward_kernel`."""
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    k_end = key_count(lengths_ptr, n // heads, sk)
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load(head(q_ptr, n, sq, d), i, sq, d, BLOCK_D)
    k_ptr = head(k_ptr, n // group, sk, d)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    for n0 in range(0, sk, BLOCK_N):
        j = n0 + tl.arange(0, BLOCK_N)
        k = load(k_ptr, j, k_end, d, BLOCK_D)
        z = logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL)
        m_new = tl.maximum(m_i, tl.max(z, 1))
        l_i = l_i * tl.exp2(m_i - finite(m_new)) + tl.sum(tl.exp2(z - finite(m_new)[:, None]), 1)
        m_i = m_new
    tl.store(head(m_ptr, n, sq, 1) + i, m_i, mask=i < sq)
    tl.store(head(l_ptr, n, sq, 1) + i, l_i, mask=i < sq)


@kernel
def weighted_sum_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    m_ptr,
    l_ptr,
    o_ptr,
    lengths_ptr,
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
    """Equation (2): O of one tile of rows; the division by l comes last. Arguments as in `paper_forward_kernel`."""
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    k_end = key_count(lengths_ptr, n // heads, sk)
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load(head(q_ptr, n, sq, d), i, sq, d, BLOCK_D)
    m_i = tl.load(head(m_ptr, n, sq, 1) + i, mask=i < sq, other=float("-inf"))
    l_i = tl.load(head(l_ptr, n, sq, 1) + i, mask=i < sq, other=0.0)
    k_ptr, v_ptr = head(k_ptr, n // group, sk, d), head(v_ptr, n // group, sk, dv)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for n0 in range(0, sk, BLOCK_N):
        j = n0 + tl.arange(0, BLOCK_N)
        k = load(k_ptr, j, k_end, d, BLOCK_D)
        v = load(v_ptr, j, k_end, dv, BLOCK_DV)
        z = logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL)
        p = tl.exp2(z - finite(m_i)[:, None])
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    store(head(o_ptr, n, sq, dv), acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None], i, sq, dv, BLOCK_DV)

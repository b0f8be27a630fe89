"""The forward of Rabe and Staats (appendix B.5): every block of keys is summarised in memory, and the summaries are combined at the end."""

import triton.language as tl

from flashverify_kernels.algorithms.tiles import finite, head, key_count, load, logits, store
from flashverify_kernels.device.jit import kernel


@kernel
def summary_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    part_o_ptr,
    part_m_ptr,
    part_l_ptr,
    lengths_ptr,
    scale_log2,
    matrices: tl.int32,
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
    """One tile of rows over one block of keys: its sum of weighted values, its maximum and its sum of weights.

    Arguments as in `paper_forward_kernel`, and:
        part_o_ptr: `[blocks of keys, B heads, sq, dv]` fp32, written; not normalised.
        part_m_ptr: `[blocks of keys, B heads, sq]` fp32, written: maximum, base 2.
        part_l_ptr: likewise, the sum of weights.
        matrices: B heads.
    """
    rows, columns = (sq + BLOCK_M - 1) // BLOCK_M, (sk + BLOCK_N - 1) // BLOCK_N
    n = tl.program_id(0) // (rows * columns)
    block = tl.program_id(0) % columns
    i = tl.program_id(0) // columns % rows * BLOCK_M + tl.arange(0, BLOCK_M)
    j = block * BLOCK_N + tl.arange(0, BLOCK_N)
    k_end = key_count(lengths_ptr, n // heads, sk)
    q = load(head(q_ptr, n, sq, d), i, sq, d, BLOCK_D)
    k = load(head(k_ptr, n // group, sk, d), j, k_end, d, BLOCK_D)
    v = load(head(v_ptr, n // group, sk, dv), j, k_end, dv, BLOCK_DV)
    z = logits(q, k, i, j, k_end, sq, align_end, scale_log2, CAUSAL)
    m = tl.max(z, 1)
    p = tl.exp2(z - finite(m)[:, None])
    part = block * matrices + n
    store(head(part_o_ptr, part, sq, dv), tl.dot(p.to(v.dtype), v, input_precision="ieee"), i, sq, dv, BLOCK_DV)
    tl.store(head(part_m_ptr, part, sq, 1) + i, m, mask=i < sq)
    tl.store(head(part_l_ptr, part, sq, 1) + i, tl.sum(p, 1), mask=i < sq)


@kernel
def combination_kernel(
    part_o_ptr,
    part_m_ptr,
    part_l_ptr,
    o_ptr,
    lse2_ptr,
    blocks: tl.int32,
    matrices: tl.int32,
    sq: tl.int32,
    dv: tl.int32,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
):
    """O and LSE of one tile of rows: the maximum over all blocks first, then the sums under it, and one division.

    Args:
        part_o_ptr: what `summary_kernel` wrote, as the next two.
        part_m_ptr: maxima.
        part_l_ptr: sums of weights.
        o_ptr: `[B heads, sq, dv]`, written.
        lse2_ptr: `[B heads, sq]` fp32, written, base 2.
        blocks: of keys.
        matrices: B heads.
        sq: queries.
        dv: channels of v.
        BLOCK_M: queries per tile.
        BLOCK_DV: dv rounded up to a power of two.
    """
    tiles = (sq + BLOCK_M - 1) // BLOCK_M
    n = tl.program_id(0) // tiles
    i = tl.program_id(0) % tiles * BLOCK_M + tl.arange(0, BLOCK_M)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    for block in range(blocks):
        part = head(part_m_ptr, block * matrices + n, sq, 1)
        m = tl.maximum(m, tl.load(part + i, mask=i < sq, other=float("-inf")))
    row_sum = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for block in range(blocks):
        part = block * matrices + n
        part_m = tl.load(head(part_m_ptr, part, sq, 1) + i, mask=i < sq, other=float("-inf"))
        factor = tl.exp2(part_m - finite(m))
        row_sum += factor * tl.load(head(part_l_ptr, part, sq, 1) + i, mask=i < sq, other=0.0)
        acc += factor[:, None] * load(head(part_o_ptr, part, sq, dv), i, sq, dv, BLOCK_DV)
    divisor = tl.where(row_sum == 0.0, 1.0, row_sum)
    store(head(o_ptr, n, sq, dv), acc / divisor[:, None], i, sq, dv, BLOCK_DV)
    tl.store(head(lse2_ptr, n, sq, 1) + i, m + tl.log2(divisor), mask=i < sq)

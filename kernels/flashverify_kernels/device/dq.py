import triton.language as tl

from flashverify_kernels.device.address import head_ptr, load_tile, row_ptrs, store_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.mask import TREE, any_visible, diagonal, key_count, visible
from flashverify_kernels.device.schedule import FULL, KEYS, TRAILING, segment, tile_schedule
from flashverify_kernels.device.softmax import score_gradient, weights


@kernel
def dq_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    lse2_ptr,
    delta_ptr,
    dq_ptr,
    scale,
    scale_log2,
    lengths_ptr,
    bits_ptr,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    d8: tl.int32,
    dv8: tl.int32,
    align_end: tl.int32,
    stride_qb: tl.int64,
    stride_qh: tl.int64,
    stride_qs: tl.int64,
    stride_kb: tl.int64,
    stride_kh: tl.int64,
    stride_ks: tl.int64,
    stride_vb: tl.int64,
    stride_vh: tl.int64,
    stride_vs: tl.int64,
    stride_dob: tl.int64,
    stride_doh: tl.int64,
    stride_dos: tl.int64,
    stride_dqb: tl.int64,
    stride_dqh: tl.int64,
    stride_dqs: tl.int64,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_D: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute dQ = scale * dS K of one tile of queries: one program per (batch, query head, query tile).

    Arguments as in `forward_kernel`; `lse2_ptr` and `delta_ptr` are `[B, heads, sq]` fp32 contiguous.
    """
    tiles = tl.cdiv(sq, BLOCK_M)
    bh = tl.program_id(0) // tiles
    m0 = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # causal: the longest tiles start first
    b = bh // heads
    h = bh % heads
    k_end = key_count(lengths_ptr, b, sk)
    diag = diagonal(sq, sk, k_end, align_end, MASK)

    i = m0 + tl.arange(0, BLOCK_M)
    q_ptr = head_ptr(q_ptr, b, h, stride_qb, stride_qh, ALIGNED)
    do_ptr = head_ptr(do_ptr, b, h, stride_dob, stride_doh, ALIGNED)
    k_ptr = head_ptr(k_ptr, b, h // group, stride_kb, stride_kh, ALIGNED)
    v_ptr = head_ptr(v_ptr, b, h // group, stride_vb, stride_vh, ALIGNED)
    q = load_tile(q_ptr, i, sq, stride_qs, d8, BLOCK_D, EVEN_D, ALIGNED)
    do = load_tile(do_ptr, i, sq, stride_dos, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    # a padded row has LSE +inf: its weights are 0 even in a tile that is not masked
    lse2 = tl.load(row_ptrs(lse2_ptr, b, h, heads, sq, i), mask=i < sq, other=float("inf"))[:, None]
    delta = tl.load(row_ptrs(delta_ptr, b, h, heads, sq, i), mask=i < sq, other=0.0)[:, None]

    dq = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    begin, full_begin, full_end, end = tile_schedule(m0, sq, k_end, diag, BLOCK_M, BLOCK_N, MASK, KEYS)
    for part in tl.static_range(FULL, TRAILING + 1):
        low, high = segment(begin, full_begin, full_end, end, part)
        for n0 in range(low, high, BLOCK_N):
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(i[:, None], j[None, :], sq, k_end, diag, bits_ptr, MASK, part != FULL)
            if part == FULL or MASK != TREE or any_visible(see):
                k = load_tile(k_ptr, j, k_end, stride_ks, d8, BLOCK_D, EVEN_D, ALIGNED)
                v = load_tile(v_ptr, j, k_end, stride_vs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
                z = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
                p = weights(z, lse2, see, part != FULL)
                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
                ds = score_gradient(p, dp, delta, see, part != FULL)
                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)

    dq_ptr = head_ptr(dq_ptr, b, h, stride_dqb, stride_dqh, ALIGNED)
    store_tile(dq_ptr, dq * scale, i, sq, stride_dqs, d8, BLOCK_D, EVEN_D, ALIGNED)

import triton.language as tl

from flashverify_kernels.device.address import declared, head_ptr, load_tile, row_ptrs, span, store_tile
from flashverify_kernels.device.dropout import drop, keep_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import dot_gradient, head_bias, head_slope, logits
from flashverify_kernels.device.mask import BITS, LOWER, SPARSE, any_visible, band, visible
from flashverify_kernels.device.schedule import (
    FULL,
    KEYS,
    LEADING,
    TRAILING,
    live_limits,
    live_row,
    segment,
    spread,
    tile_schedule,
)
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
    dbias_ptr,
    scale,
    scale_log2,
    cap_ratio,
    cap_log2,
    keep_share,
    keep_scale,
    cu_q_ptr,
    cu_k_ptr,
    q_lengths_ptr,
    k_lengths_ptr,
    bits_ptr,
    blocks_ptr,
    slopes_ptr,
    bias_ptr,
    heads: tl.int32,
    group: tl.int32,
    sq: tl.int32,
    sk: tl.int32,
    d8: tl.int32,
    dv8: tl.int32,
    left: tl.int32,
    right: tl.int32,
    align_end: tl.int32,
    tree: tl.int32,
    block_rows: tl.int32,
    block_keys: tl.int32,
    align_slopes: tl.int32,
    seed: tl.uint64,
    offset: tl.uint32,
    threshold: tl.uint32,
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
    stride_rowb: tl.int64,
    stride_rowh: tl.int64,
    stride_bitsb: tl.int64,
    stride_bitsh: tl.int64,
    stride_bitss: tl.int64,
    stride_blocksb: tl.int64,
    stride_blocksh: tl.int64,
    stride_biasb: tl.int64,
    stride_biash: tl.int64,
    stride_biass: tl.int64,
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
    """Compute dQ = scale * dS K of one tile of queries: one program per (sequence, query head, query tile).

    Arguments as in `forward_kernel`; `lse2_ptr` and `delta_ptr` are `[B, heads, sq]` fp32; `keep_scale` is 1 / (1 - p).
    `dbias_ptr` is `[B, heads, sq, sk]` fp32 contiguous, or None: dS is written there before any softcap, in visited tiles
    only, so all of it must be 0 before.
    """
    tiles = tl.cdiv(sq, BLOCK_M)
    bh = tl.program_id(0) // tiles
    m0 = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M  # causal: the longest tiles start first
    b = bh // heads
    h = bh % heads
    q0, sq = span(cu_q_ptr, b, sq)
    k0, sk = span(cu_k_ptr, b, sk)
    q_end = declared(q_lengths_ptr, b, sq)
    k_end = declared(k_lengths_ptr, b, sk)
    low, high = band(q_end, k_end, left, right, align_end)
    bits_start = tree * high

    i = m0 + tl.arange(0, BLOCK_M)
    q_ptr = head_ptr(q_ptr, b, h, q0, stride_qb, stride_qh, stride_qs, ALIGNED)
    do_ptr = head_ptr(do_ptr, b, h, q0, stride_dob, stride_doh, stride_dos, ALIGNED)
    k_ptr = head_ptr(k_ptr, b, h // group, k0, stride_kb, stride_kh, stride_ks, ALIGNED)
    v_ptr = head_ptr(v_ptr, b, h // group, k0, stride_vb, stride_vh, stride_vs, ALIGNED)
    if BITS & MASK:
        bits_ptr = head_ptr(bits_ptr, b, h, q0, stride_bitsb, stride_bitsh, stride_bitss, False)
    if bias_ptr is not None:
        bias_ptr = head_bias(bias_ptr, b, h, stride_biasb, stride_biash)
    slope = slopes_ptr
    if slopes_ptr is not None:
        slope = head_slope(slopes_ptr, h)
    shift = align_slopes * (k_end - q_end)
    q = load_tile(q_ptr, i, q_end, stride_qs, d8, BLOCK_D, EVEN_D, ALIGNED)
    do = load_tile(do_ptr, i, q_end, stride_dos, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    # a padded row has LSE +inf: its weights are 0 even in a tile that is not masked
    lse2_ptrs = row_ptrs(lse2_ptr, b, h, q0, stride_rowb, stride_rowh, i)
    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[:, None]
    delta_ptrs = row_ptrs(delta_ptr, b, h, q0, stride_rowb, stride_rowh, i)
    delta = tl.load(delta_ptrs, mask=i < q_end, other=0.0)[:, None]

    dq = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    limits = tile_schedule(m0, q_end, k_end, low, high, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)
    live_ptr = blocks_ptr
    if SPARSE & MASK:
        live_ptr = live_row(blocks_ptr, b, h, m0, block_rows, block_keys, sk, stride_blocksb, stride_blocksh)
        limits = live_limits(limits, live_ptr, block_keys, sk)
    for part in tl.static_range(LEADING if (LOWER | BITS) & MASK == LOWER else FULL, TRAILING + 1):
        start, stop = segment(limits, part)
        for t in range(start, stop, BLOCK_N):
            n0 = spread(t, live_ptr, block_keys, MASK)
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(
                i[:, None], j[None, :], q_end, k_end, low, high, bits_ptr, stride_bitss, bits_start, MASK, part != FULL
            )
            if part == FULL or not (BITS & MASK) or any_visible(see):
                k = load_tile(k_ptr, j, k_end, stride_ks, d8, BLOCK_D, EVEN_D, ALIGNED)
                v = load_tile(v_ptr, j, k_end, stride_vs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
                z = logits(
                    dot,
                    i[:, None],
                    j[None, :],
                    q_end,
                    k_end,
                    scale_log2,
                    cap_ratio,
                    cap_log2,
                    slope,
                    shift,
                    bias_ptr,
                    stride_biass,
                    part != FULL,
                )
                p = weights(z, lse2, see, part != FULL)
                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)
                if keep_share is not None:
                    dp = drop(dp * keep_scale, keep_tile(i, n0, bh, seed, offset, threshold, BLOCK_N))
                ds = score_gradient(p, dp, delta, see, part != FULL)
                if dbias_ptr is not None:
                    at = (bh.to(tl.int64) * sq + i)[:, None] * sk + j[None, :]
                    tl.store(dbias_ptr + at, ds, mask=(i < q_end)[:, None] & (j < k_end)[None, :])
                ds = dot_gradient(ds, dot, cap_ratio)
                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)

    dq_ptr = head_ptr(dq_ptr, b, h, q0, stride_dqb, stride_dqh, stride_dqs, ALIGNED)
    store_tile(dq_ptr, dq * scale, i, sq, stride_dqs, d8, BLOCK_D, EVEN_D, ALIGNED)

import triton.language as tl

from flashverify_kernels.device.address import declared, head_ptr, load_tile, row_ptrs, span, store_tile
from flashverify_kernels.device.dropout import drop, keep_tile_transposed
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import dot_gradient, head_bias, head_slope, logits
from flashverify_kernels.device.mask import BITS, LOWER, SPARSE, UPPER, any_visible, band, visible
from flashverify_kernels.device.schedule import (
    FULL,
    LEADING,
    QUERIES,
    TRAILING,
    live_limits,
    live_row,
    segment,
    spread,
    tile_schedule,
)
from flashverify_kernels.device.softmax import score_gradient, weights


@kernel
def dkdv_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    lse2_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
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
    kv_heads: tl.int32,
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
    stride_dkb: tl.int64,
    stride_dkh: tl.int64,
    stride_dks: tl.int64,
    stride_dvb: tl.int64,
    stride_dvh: tl.int64,
    stride_dvs: tl.int64,
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
    """Compute dK = scale * dS^T Q and dV = P^T dO of one tile of keys: one program per (sequence, kv head, key tile).

    The program walks the query heads of its group and sums in fp32. Tiles are kept transposed, `[BLOCK_N, BLOCK_M]`, so
    that P^T and dS^T are the left operands of their products. Arguments as in `dq_kernel`.
    """
    tiles = tl.cdiv(sk, BLOCK_N)
    bh = tl.program_id(0) // tiles
    n0 = tl.program_id(0) % tiles * BLOCK_N
    b = bh // kv_heads
    hk = bh % kv_heads
    q0, sq = span(cu_q_ptr, b, sq)
    k0, sk = span(cu_k_ptr, b, sk)
    q_end = declared(q_lengths_ptr, b, sq)
    k_end = declared(k_lengths_ptr, b, sk)
    low, high = band(q_end, k_end, left, right, align_end)
    bits_start = tree * high
    shift = align_slopes * (k_end - q_end)

    j = n0 + tl.arange(0, BLOCK_N)
    k_ptr = head_ptr(k_ptr, b, hk, k0, stride_kb, stride_kh, stride_ks, ALIGNED)
    v_ptr = head_ptr(v_ptr, b, hk, k0, stride_vb, stride_vh, stride_vs, ALIGNED)
    k = load_tile(k_ptr, j, k_end, stride_ks, d8, BLOCK_D, EVEN_D, ALIGNED)
    v = load_tile(v_ptr, j, k_end, stride_vs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)

    dk = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
    dv = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
    limits = tile_schedule(n0, q_end, k_end, low, high, bits_start, BLOCK_M, BLOCK_N, MASK, QUERIES)
    for member in range(group):
        h = hk * group + member
        q_head = head_ptr(q_ptr, b, h, q0, stride_qb, stride_qh, stride_qs, ALIGNED)
        do_head = head_ptr(do_ptr, b, h, q0, stride_dob, stride_doh, stride_dos, ALIGNED)
        bits_head = bits_ptr
        if BITS & MASK:
            bits_head = head_ptr(bits_ptr, b, h, q0, stride_bitsb, stride_bitsh, stride_bitss, False)
        bias_head = bias_ptr
        if bias_ptr is not None:
            bias_head = head_bias(bias_ptr, b, h, stride_biasb, stride_biash)
        slope = slopes_ptr
        if slopes_ptr is not None:
            slope = head_slope(slopes_ptr, hk.to(tl.int64) * group + member)
        live_ptr = blocks_ptr
        live = limits
        if SPARSE & MASK:
            live_ptr = live_row(blocks_ptr, b, h, n0, block_keys, block_rows, sq, stride_blocksb, stride_blocksh)
            live = live_limits(limits, live_ptr, block_rows, sq)
        # without a lower edge and bits, nothing follows the full tiles
        for part in tl.static_range(
            LEADING if (UPPER | BITS) & MASK == UPPER else FULL, TRAILING + (1 if (LOWER | BITS) & MASK else 0)
        ):
            start, stop = segment(live, part)
            for t in range(start, stop, BLOCK_M):
                m0 = spread(t, live_ptr, block_rows, MASK)
                i = m0 + tl.arange(0, BLOCK_M)
                see = visible(
                    i[None, :],
                    j[:, None],
                    q_end,
                    k_end,
                    low,
                    high,
                    bits_head,
                    stride_bitss,
                    bits_start,
                    MASK,
                    part != FULL,
                )
                if part == FULL or not (BITS & MASK) or any_visible(see):
                    q = load_tile(q_head, i, q_end, stride_qs, d8, BLOCK_D, EVEN_D, ALIGNED)
                    do = load_tile(do_head, i, q_end, stride_dos, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
                    # a padded row has LSE +inf: its weights are 0
                    lse2_ptrs = row_ptrs(lse2_ptr, b, h, q0, stride_rowb, stride_rowh, i)
                    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]
                    delta_ptrs = row_ptrs(delta_ptr, b, h, q0, stride_rowb, stride_rowh, i)
                    delta = tl.load(delta_ptrs, mask=i < q_end, other=0.0)[None, :]
                    dotT = tl.dot(k, tl.trans(q), input_precision=PRECISION)
                    zT = logits(
                        dotT,
                        i[None, :],
                        j[:, None],
                        q_end,
                        k_end,
                        scale_log2,
                        cap_ratio,
                        cap_log2,
                        slope,
                        shift,
                        bias_head,
                        stride_biass,
                        True,  # the tile of keys is not whole in every full tile
                    )
                    dpT = tl.dot(v, tl.trans(do), input_precision=PRECISION)
                    pT = weights(zT, lse2, see, part != FULL)
                    wT = pT
                    if keep_share is not None:
                        stream = b * kv_heads * group + h
                        keepT = keep_tile_transposed(i, n0, stream, seed, offset, threshold, BLOCK_N)
                        wT = drop(pT, keepT)
                        dpT = drop(dpT * keep_scale, keepT)
                    dv = tl.dot(wT.to(do.dtype), do, dv, input_precision=PRECISION)
                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)
                    dsT = dot_gradient(dsT, dotT, cap_ratio)
                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)

    keep = (j < k_end)[:, None]
    dk = tl.where(keep, dk, 0.0)
    dv = tl.where(keep, dv, 0.0)
    if keep_share is not None:
        dv = dv / keep_share
    dk_ptr = head_ptr(dk_ptr, b, hk, k0, stride_dkb, stride_dkh, stride_dks, ALIGNED)
    dv_ptr = head_ptr(dv_ptr, b, hk, k0, stride_dvb, stride_dvh, stride_dvs, ALIGNED)
    store_tile(dk_ptr, dk * scale, j, sk, stride_dks, d8, BLOCK_D, EVEN_D, ALIGNED)
    store_tile(dv_ptr, dv, j, sk, stride_dvs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)

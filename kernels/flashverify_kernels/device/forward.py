import triton.language as tl

from flashverify_kernels.device.address import declared, head_ptr, load_tile, row_ptrs, span, store_tile
from flashverify_kernels.device.dropout import drop, keep_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import head_bias, head_sink, head_slope, logits
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
from flashverify_kernels.device.softmax import finish, online_step, take_sink


@kernel
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse2_ptr,
    scale_log2,
    cap_ratio,
    cap_log2,
    keep_share,
    cu_q_ptr,
    cu_k_ptr,
    q_lengths_ptr,
    k_lengths_ptr,
    bits_ptr,
    blocks_ptr,
    slopes_ptr,
    bias_ptr,
    sink_ptr,
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
    stride_ob: tl.int64,
    stride_oh: tl.int64,
    stride_os: tl.int64,
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
    """Compute O and LSE of one tile of queries: one program per (sequence, query head, query tile).

    A program past the end of its packed sequence has no keys to walk and no rows to write.

    The arguments, which the other kernels share:
        q_ptr: `[B, heads, sq, 8 d8]`; packed sequences share one batch, of the rows of all of them.
        k_ptr: `[B, heads // group, sk, 8 d8]`.
        v_ptr: `[B, heads // group, sk, 8 dv8]`.
        o_ptr: `[B, heads, sq, 8 dv8]`, written.
        lse2_ptr: `[B, heads, sq]` fp32, written: LSE, log base 2.
        scale_log2: softmax scale times log2(e).
        cap_ratio: softmax scale / softcap, or None.
        cap_log2: softcap times log2(e), or None.
        keep_share: 1 - p of the dropout, or None without.
        cu_q_ptr: `[n + 1]` int32 cumulative numbers of queries of packed sequences, or None.
        cu_k_ptr: `[n + 1]` int32 cumulative numbers of keys, or None.
        q_lengths_ptr: `[B]` int32 query lengths, or None.
        k_lengths_ptr: `[B]` int32 key lengths, or None.
        bits_ptr: `[B or 1, heads or 1, sq, words]` int32 bits of the mask, or None.
        blocks_ptr: tables of the live blocks along the walked axis, see `schedule`, or None.
        slopes_ptr: `[heads]` fp32 ALiBi slopes, or None.
        bias_ptr: `[B or 1, heads or 1, sq, sk]` in the type of q, natural units, or None.
        sink_ptr: `[heads]` fp32 logits of the sinks, natural units, or None.
        heads: number of query heads.
        group: query heads per kv head.
        sq: number of queries, of the longest sequence where they are packed.
        sk: number of keys, likewise.
        d8: head dimension of q and k, in units of 8.
        dv8: head dimension of v, in units of 8.
        left: keys that the band holds before the diagonal.
        right: keys that the band holds after the diagonal.
        align_end: 1 if the diagonal ends at the last key, 0 if it starts at the first.
        tree: 1 if the bits start at the upper edge of the band, 0 if at key 0.
        block_rows: queries per block of a block-sparse mask.
        block_keys: keys per block.
        align_slopes: 1 if ALiBi measures distances from a diagonal that ends at the last key, 0 from one that starts at the first.
        seed: of the dropout, like the next two, see `dropout`.
        offset: 32 bits.
        threshold: floor(p * 2^32).
        stride_qb and the others: strides in elements, by tensor and axis (batch, head, sequence); `row` is the statistics of
            the rows, `bits` and `blocks` the tables; a broadcast axis has stride 0.
        BLOCK_M: queries per tile.
        BLOCK_N: keys per tile.
        BLOCK_D: 8 d8 rounded up to a power of two.
        BLOCK_DV: 8 dv8 rounded up to a power of two.
        EVEN_D: whether 8 d8 is BLOCK_D.
        EVEN_DV: whether 8 dv8 is BLOCK_DV.
        ALIGNED: whether all strides are multiples of 8 and all pointers are 16-byte aligned.
        MASK: parts of the mask.
        PRECISION: of dot products of fp32 operands.
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

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
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
                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)
                if keep_share is not None:
                    p = drop(p, keep_tile(i, n0, bh, seed, offset, threshold, BLOCK_N))
                v = load_tile(v_ptr, j, k_end, stride_vs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)

    if q_lengths_ptr is not None:  # a row past the length took part in the full tiles
        m_i = tl.where(i < q_end, m_i, float("-inf"))
        l_i = tl.where(i < q_end, l_i, 0.0)
        acc = tl.where((i < q_end)[:, None], acc, 0.0)
    if sink_ptr is not None:
        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(sink_ptr, h))
        acc = acc * alpha[:, None]
    divisor, lse2 = finish(m_i, l_i)
    if keep_share is not None:
        divisor = divisor * keep_share
    o_ptr = head_ptr(o_ptr, b, h, q0, stride_ob, stride_oh, stride_os, ALIGNED)
    store_tile(o_ptr, acc / divisor[:, None], i, sq, stride_os, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    tl.store(row_ptrs(lse2_ptr, b, h, q0, stride_rowb, stride_rowh, i), lse2, mask=i < sq)

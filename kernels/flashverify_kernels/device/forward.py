import triton.language as tl

from flashverify_kernels.device.address import head_ptr, load_tile, row_ptrs, store_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.mask import TREE, any_visible, diagonal, key_count, visible
from flashverify_kernels.device.schedule import FULL, KEYS, TRAILING, segment, tile_schedule
from flashverify_kernels.device.softmax import finish, online_step


@kernel
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse2_ptr,
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
    stride_ob: tl.int64,
    stride_oh: tl.int64,
    stride_os: tl.int64,
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
    """Compute O and LSE of one tile of queries: one program per (batch, query head, query tile).

    The arguments, which the other kernels share:
        q_ptr: `[B, heads, sq, 8 d8]`.
        k_ptr: `[B, heads // group, sk, 8 d8]`.
        v_ptr: `[B, heads // group, sk, 8 dv8]`.
        o_ptr: `[B, heads, sq, 8 dv8]`, written.
        lse2_ptr: `[B, heads, sq]` fp32 contiguous, written: LSE, log base 2.
        scale_log2: softmax scale times log2(e).
        lengths_ptr: `[B]` int32 key lengths, or None.
        bits_ptr: `[sq, ceil(sq / 32)]` int32 ancestor bits of a tree, or None.
        heads: number of query heads.
        group: query heads per kv head.
        sq: number of queries.
        sk: number of keys.
        d8: head dimension of q and k, in units of 8.
        dv8: head dimension of v, in units of 8.
        align_end: 1 if a causal diagonal ends at the last key, 0 if it starts at the first.
        stride_qb and the others: strides in elements, by tensor and axis (batch, head, sequence).
        BLOCK_M: queries per tile.
        BLOCK_N: keys per tile.
        BLOCK_D: 8 d8 rounded up to a power of two.
        BLOCK_DV: 8 dv8 rounded up to a power of two.
        EVEN_D: whether 8 d8 is BLOCK_D.
        EVEN_DV: whether 8 dv8 is BLOCK_DV.
        ALIGNED: whether all strides are multiples of 8 and all pointers are 16-byte aligned.
        MASK: kind of mask.
        PRECISION: of dot products of fp32 operands.
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
    k_ptr = head_ptr(k_ptr, b, h // group, stride_kb, stride_kh, ALIGNED)
    v_ptr = head_ptr(v_ptr, b, h // group, stride_vb, stride_vh, ALIGNED)
    q = load_tile(q_ptr, i, sq, stride_qs, d8, BLOCK_D, EVEN_D, ALIGNED)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    begin, full_begin, full_end, end = tile_schedule(m0, sq, k_end, diag, BLOCK_M, BLOCK_N, MASK, KEYS)
    for part in tl.static_range(FULL, TRAILING + 1):
        low, high = segment(begin, full_begin, full_end, end, part)
        for n0 in range(low, high, BLOCK_N):
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(i[:, None], j[None, :], sq, k_end, diag, bits_ptr, MASK, part != FULL)
            if part == FULL or MASK != TREE or any_visible(see):
                k = load_tile(k_ptr, j, k_end, stride_ks, d8, BLOCK_D, EVEN_D, ALIGNED)
                z = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)
                v = load_tile(v_ptr, j, k_end, stride_vs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)

    divisor, lse2 = finish(m_i, l_i)
    o_ptr = head_ptr(o_ptr, b, h, stride_ob, stride_oh, ALIGNED)
    store_tile(o_ptr, acc / divisor[:, None], i, sq, stride_os, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    tl.store(row_ptrs(lse2_ptr, b, h, heads, sq, i), lse2, mask=i < sq)

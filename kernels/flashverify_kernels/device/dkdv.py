import triton.language as tl

from flashverify_kernels.device.address import head_ptr, load_tile, row_ptrs, store_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.mask import CAUSAL, TREE, any_visible, diagonal, key_count, visible
from flashverify_kernels.device.schedule import FULL, LEADING, QUERIES, TRAILING, segment, tile_schedule
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
    lengths_ptr,
    bits_ptr,
    kv_heads: tl.int32,
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
    stride_dkb: tl.int64,
    stride_dkh: tl.int64,
    stride_dks: tl.int64,
    stride_dvb: tl.int64,
    stride_dvh: tl.int64,
    stride_dvs: tl.int64,
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
    """Compute dK = scale * dS^T Q and dV = P^T dO of one tile of keys: one program per (batch, kv head, key tile).

    The program walks the query heads of its group and sums in fp32. Tiles are kept transposed, `[BLOCK_N, BLOCK_M]`, so
    that P^T and dS^T are the left operands of their products. Arguments as in `dq_kernel`.
    """
    tiles = tl.cdiv(sk, BLOCK_N)
    bh = tl.program_id(0) // tiles
    n0 = tl.program_id(0) % tiles * BLOCK_N
    b = bh // kv_heads
    hk = bh % kv_heads
    k_end = key_count(lengths_ptr, b, sk)
    diag = diagonal(sq, sk, k_end, align_end, MASK)

    j = n0 + tl.arange(0, BLOCK_N)
    k_ptr = head_ptr(k_ptr, b, hk, stride_kb, stride_kh, ALIGNED)
    v_ptr = head_ptr(v_ptr, b, hk, stride_vb, stride_vh, ALIGNED)
    k = load_tile(k_ptr, j, k_end, stride_ks, d8, BLOCK_D, EVEN_D, ALIGNED)
    v = load_tile(v_ptr, j, k_end, stride_vs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)

    dk = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
    dv = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
    begin, full_begin, full_end, end = tile_schedule(n0, sq, k_end, diag, BLOCK_M, BLOCK_N, MASK, QUERIES)
    for member in range(group):
        h = hk * group + member
        q_head = head_ptr(q_ptr, b, h, stride_qb, stride_qh, ALIGNED)
        do_head = head_ptr(do_ptr, b, h, stride_dob, stride_doh, ALIGNED)
        # only a causal diagonal is followed by fully visible tiles of queries
        for part in tl.static_range(LEADING if MASK == CAUSAL else FULL, TRAILING + 1):
            low, high = segment(begin, full_begin, full_end, end, part)
            for m0 in range(low, high, BLOCK_M):
                i = m0 + tl.arange(0, BLOCK_M)
                see = visible(i[None, :], j[:, None], sq, k_end, diag, bits_ptr, MASK, part != FULL)
                if part == FULL or MASK != TREE or any_visible(see):
                    q = load_tile(q_head, i, sq, stride_qs, d8, BLOCK_D, EVEN_D, ALIGNED)
                    do = load_tile(do_head, i, sq, stride_dos, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
                    # a padded row has LSE +inf: its weights are 0
                    lse2 = tl.load(row_ptrs(lse2_ptr, b, h, kv_heads * group, sq, i), mask=i < sq, other=float("inf"))[
                        None, :
                    ]
                    delta = tl.load(row_ptrs(delta_ptr, b, h, kv_heads * group, sq, i), mask=i < sq, other=0.0)[None, :]
                    zT = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale_log2
                    pT = weights(zT, lse2, see, part != FULL)
                    dv = tl.dot(pT.to(do.dtype), do, dv, input_precision=PRECISION)
                    dpT = tl.dot(v, tl.trans(do), input_precision=PRECISION)
                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)
                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)

    dk_ptr = head_ptr(dk_ptr, b, hk, stride_dkb, stride_dkh, ALIGNED)
    dv_ptr = head_ptr(dv_ptr, b, hk, stride_dvb, stride_dvh, ALIGNED)
    store_tile(dk_ptr, dk * scale, j, sk, stride_dks, d8, BLOCK_D, EVEN_D, ALIGNED)
    store_tile(dv_ptr, dv, j, sk, stride_dvs, dv8, BLOCK_DV, EVEN_DV, ALIGNED)

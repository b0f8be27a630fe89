import triton.language as tl

from flashverify_kernels.device.address import fetch_tile, head_of, load_tile, row_ptrs, rows_of, store_tile
from flashverify_kernels.device.arguments import DropoutDraws, LogitTerms, MaskParts, Sequences, Sizes, Statistics, View
from flashverify_kernels.device.dropout import drop, keep_tile_transposed
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import dot_gradient, head_terms, logits
from flashverify_kernels.device.mask import BITS, LOWER, UPPER, any_visible, band_of, visible
from flashverify_kernels.device.order import place_of
from flashverify_kernels.device.schedule import (
    FULL,
    LEADING,
    QUERIES,
    TRAILING,
    live_schedule,
    segment,
    spread,
    tile_schedule,
)
from flashverify_kernels.device.softmax import score_gradient, weights


@kernel
def dkdv_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    do_view: View,
    dk_view: View,
    dv_view: View,
    stats: Statistics,
    sequences: Sequences,
    sizes: Sizes,
    mask: MaskParts,
    terms: LogitTerms,
    dropout: DropoutDraws,
    q_tiles,
    do_tiles,
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
    that P^T and dS^T are the left operands of their products. Arguments as in `dq_kernel`;
    `q_tiles` and `do_tiles` are descriptors of all of Q and dO, or None: their tiles are loaded by pointers.
    """
    FALLING: tl.constexpr = (UPPER | LOWER) & MASK == UPPER  # the first keys are seen by the most queries
    b, hk, tile = place_of(sequences.cu_k, sequences, sizes.sk, sizes.kv_heads, BLOCK_N, FALLING, False)
    n0 = tile * BLOCK_N
    q0, sq, q_end = rows_of(sequences.cu_q, sequences.q_lengths, b, sizes.sq)
    k0, sk, k_end = rows_of(sequences.cu_k, sequences.k_lengths, b, sizes.sk)
    band = band_of(b, q_end, k_end, mask, MASK)
    bits_start = mask.tree * band.high

    j = n0 + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    k_head = head_of(k_view, b, hk, k0, ALIGNED)
    v_head = head_of(v_view, b, hk, k0, ALIGNED)
    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]
    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]

    dk = tl.full([BLOCK_N, BLOCK_D], 0.0, tl.float32)
    dv = tl.full([BLOCK_N, BLOCK_DV], 0.0, tl.float32)
    limits = tile_schedule(n0, q_end, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, QUERIES)
    for member in range(sizes.group):
        h = hk * sizes.group + member
        q_head = head_of(q_view, b, h, q0, ALIGNED)
        do_head = head_of(do_view, b, h, q0, ALIGNED)
        bits = mask.bits
        if BITS & MASK:
            bits = head_of(mask.bits, b, h, q0, False)
        head = head_terms(terms, b, hk.to(tl.int64) * sizes.group + member, q0, q_end, k_end)
        live, live_ptr = live_schedule(limits, mask.blocks, b, h, n0, sq, MASK, QUERIES)
        # without a lower edge and bits, nothing follows the full tiles
        for part in tl.static_range(
            LEADING if (UPPER | BITS) & MASK == UPPER else FULL, TRAILING + (1 if (LOWER | BITS) & MASK else 0)
        ):
            start, stop = segment(live, part)
            for t in range(start, stop, BLOCK_M):
                m0 = spread(t, live_ptr, mask.blocks.rows, MASK)
                i = m0 + tl.arange(0, BLOCK_M)  # [BLOCK_M]
                see = visible(i[None, :], j[:, None], q_end, k_end, band, bits, bits_start, MASK, part != FULL)
                if part == FULL or not (BITS & MASK) or any_visible(see):
                    if q_tiles is None:
                        q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_M, BLOCK_D]
                    else:
                        q = fetch_tile(q_tiles, b, h, m0, BLOCK_M, BLOCK_D)
                    if do_tiles is None:
                        do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_M, BLOCK_DV]
                    else:
                        do = fetch_tile(do_tiles, b, h, m0, BLOCK_M, BLOCK_DV)
                    # a padded row has LSE +inf: its weights are 0
                    lse2_ptrs = row_ptrs(stats.lse2, stats, b, h, q0, i)
                    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[None, :]  # [1, BLOCK_M]
                    delta_ptrs = row_ptrs(stats.delta, stats, b, h, q0, i)
                    delta = tl.load(delta_ptrs, mask=i < q_end, other=0.0)[None, :]  # [1, BLOCK_M]
                    dotT = tl.dot(k, tl.trans(q), input_precision=PRECISION)  # [BLOCK_N, BLOCK_M]
                    # masked in every tile: that of the keys is not whole in every full one
                    zT = logits(dotT, i[None, :], j[:, None], q_end, k_end, terms, head, True)
                    dpT = tl.dot(v, tl.trans(do), input_precision=PRECISION)  # [BLOCK_N, BLOCK_M]
                    pT = weights(zT, lse2, see, part != FULL)  # [BLOCK_N, BLOCK_M]
                    wT = pT
                    if dropout.keep_share is not None:
                        stream = b * sizes.heads + h
                        keepT = keep_tile_transposed(i, n0, stream, dropout, BLOCK_N)
                        wT = drop(pT, keepT)
                        dpT = drop(dpT * dropout.keep_scale, keepT)
                    dv = tl.dot(wT.to(do.dtype), do, dv, input_precision=PRECISION)  # [BLOCK_N, BLOCK_DV]
                    dsT = score_gradient(pT, dpT, delta, see, part != FULL)
                    dsT = dot_gradient(dsT, dotT, terms.cap_ratio)
                    dk = tl.dot(dsT.to(q.dtype), q, dk, input_precision=PRECISION)  # [BLOCK_N, BLOCK_D]

    keep = (j < k_end)[:, None]
    dk = tl.where(keep, dk, 0.0)
    dv = tl.where(keep, dv, 0.0)
    if dropout.keep_share is not None:
        dv = dv / dropout.keep_share
    dk_head = head_of(dk_view, b, hk, k0, ALIGNED)
    dv_head = head_of(dv_view, b, hk, k0, ALIGNED)
    store_tile(dk_head, dk * terms.scale, j, sk, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    store_tile(dv_head, dv, j, sk, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)

import triton.language as tl

from flashverify_kernels.device.address import (
    fetch_tile,
    head_of,
    load_tile,
    row_numbers,
    row_ptrs,
    rows_of,
    store_tile,
)
from flashverify_kernels.device.arguments import DropoutDraws, LogitTerms, MaskParts, Sequences, Sizes, Statistics, View
from flashverify_kernels.device.dropout import drop, keep_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import dot_gradient, head_terms, logits
from flashverify_kernels.device.mask import BITS, LOWER, UPPER, any_visible, band_of, visible
from flashverify_kernels.device.order import place_of
from flashverify_kernels.device.schedule import (
    FULL,
    KEYS,
    LEADING,
    TRAILING,
    live_schedule,
    segment,
    spread,
    tile_schedule,
)
from flashverify_kernels.device.softmax import score_gradient, weights


@kernel
def dq_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    do_view: View,
    dq_view: View,
    ds_ptr,
    stats: Statistics,
    sequences: Sequences,
    sizes: Sizes,
    mask: MaskParts,
    terms: LogitTerms,
    dropout: DropoutDraws,
    k_tiles,
    v_tiles,
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

    Arguments as in `forward_kernel`; the LSE and the delta of `stats` are read. `do_view` has the shape of O, `dq_view` that of Q.
    `ds_ptr` is `[rows of stats, sk]` fp32 contiguous, or None: dS is written there before any softcap, in visited tiles only, so all
    of it must be 0 before. Keys are numbered within their sequence.
    """
    FALLING: tl.constexpr = (UPPER | LOWER) & MASK == UPPER  # the last queries see the most keys
    b, h, tile = place_of(sequences.cu_q, sequences, sizes.sq, sizes.heads, BLOCK_M, FALLING, True)
    bh = b * sizes.heads + h
    m0 = tile * BLOCK_M
    q0, sq, q_end = rows_of(sequences.cu_q, sequences.q_lengths, b, sizes.sq)
    k0, sk, k_end = rows_of(sequences.cu_k, sequences.k_lengths, b, sizes.sk)
    band = band_of(b, q_end, k_end, mask, MASK)
    bits_start = mask.tree * band.high

    i = m0 + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    q_head = head_of(q_view, b, h, q0, ALIGNED)
    do_head = head_of(do_view, b, h, q0, ALIGNED)
    k_head = head_of(k_view, b, h // sizes.group, k0, ALIGNED)
    v_head = head_of(v_view, b, h // sizes.group, k0, ALIGNED)
    bits = mask.bits
    if BITS & MASK:
        bits = head_of(mask.bits, b, h, q0, False)
    head = head_terms(terms, b, h, q0, q_end, k_end)
    q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_M, BLOCK_D]
    do = load_tile(do_head, i, q_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_M, BLOCK_DV]
    # a padded row has LSE +inf: its weights are 0 even in a tile that is not masked
    lse2_ptrs = row_ptrs(stats.lse2, stats, b, h, q0, i)
    lse2 = tl.load(lse2_ptrs, mask=i < q_end, other=float("inf"))[:, None]  # [BLOCK_M, 1]
    delta_ptrs = row_ptrs(stats.delta, stats, b, h, q0, i)
    delta = tl.load(delta_ptrs, mask=i < q_end, other=0.0)[:, None]  # [BLOCK_M, 1]

    dq = tl.full([BLOCK_M, BLOCK_D], 0.0, tl.float32)
    limits = tile_schedule(m0, q_end, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)
    limits, live_ptr = live_schedule(limits, mask.blocks, b, h, m0, sk, MASK, KEYS)
    for part in tl.static_range(LEADING if (LOWER | BITS) & MASK == LOWER else FULL, TRAILING + 1):
        start, stop = segment(limits, part)
        for t in range(start, stop, BLOCK_N):
            n0 = spread(t, live_ptr, mask.blocks.keys, MASK)
            j = n0 + tl.arange(0, BLOCK_N)  # [BLOCK_N]
            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)
            if part == FULL or not (BITS & MASK) or any_visible(see):
                if k_tiles is None:
                    k = load_tile(k_head, j, k_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_N, BLOCK_D]
                else:
                    k = fetch_tile(k_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_D)
                if v_tiles is None:
                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]
                else:
                    v = fetch_tile(v_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_DV)
                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
                z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)  # [BLOCK_M, BLOCK_N]
                p = weights(z, lse2, see, part != FULL)  # [BLOCK_M, BLOCK_N]
                dp = tl.dot(do, tl.trans(v), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
                if dropout.keep_share is not None:
                    dp = drop(dp * dropout.keep_scale, keep_tile(i, n0, bh, dropout, BLOCK_N))
                ds = score_gradient(p, dp, delta, see, part != FULL)  # [BLOCK_M, BLOCK_N]
                if ds_ptr is not None:
                    at = row_numbers(stats, b, h, q0, i)[:, None] * sizes.sk + j[None, :]
                    tl.store(ds_ptr + at, ds, mask=(i < q_end)[:, None] & (j < k_end)[None, :])
                ds = dot_gradient(ds, dot, terms.cap_ratio)
                dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)  # [BLOCK_M, BLOCK_D]

    dq_head = head_of(dq_view, b, h, q0, ALIGNED)
    store_tile(dq_head, dq * terms.scale, i, sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)

import triton.language as tl

from flashverify_kernels.device.address import fetch_tile, head_of, load_tile, row_ptrs, rows_of, store_tile
from flashverify_kernels.device.arguments import DropoutDraws, LogitTerms, MaskParts, Sequences, Sizes, Statistics, View
from flashverify_kernels.device.dropout import drop, keep_tile
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import head_sink, head_terms, logits
from flashverify_kernels.device.mask import BITS, LOWER, any_visible, band_of, visible
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
from flashverify_kernels.device.softmax import finish, online_step, take_sink


@kernel
def forward_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    o_view: View,
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
    """Compute O and LSE of one tile of queries: one program per (sequence, query head, query tile).

    A program past the end of its packed sequence has no keys to walk and no rows to write.

    The arguments, which the other kernels share:
        q_view: `[B, heads, sq, 8 d8]`; packed sequences share one batch, of the rows of all of them.
        k_view: `[B, kv_heads, sk, 8 d8]`.
        v_view: `[B, kv_heads, sk, 8 dv8]`.
        o_view: `[B, heads, sq, 8 dv8]`, written.
        stats: its LSE is written.
        sequences: where rows lie.
        sizes: of the problem.
        mask: its numbers and tables.
        terms: what a logit is made of.
        dropout: which weights are dropped.
        k_tiles: descriptor of all of K, or None: its tiles are loaded by pointers.
        v_tiles: descriptor of all of V, likewise.
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
    LAST_FIRST: tl.constexpr = True  # causal: the longest tiles start first
    b, h, tile = place_of(sequences.cu_q, sequences, sizes.sq, sizes.heads, BLOCK_M, False, LAST_FIRST)
    bh = b * sizes.heads + h
    m0 = tile * BLOCK_M
    q0, sq, q_end = rows_of(sequences.cu_q, sequences.q_lengths, b, sizes.sq)
    k0, sk, k_end = rows_of(sequences.cu_k, sequences.k_lengths, b, sizes.sk)
    band = band_of(b, q_end, k_end, mask, MASK)
    bits_start = mask.tree * band.high

    i = m0 + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    q_head = head_of(q_view, b, h, q0, ALIGNED)
    k_head = head_of(k_view, b, h // sizes.group, k0, ALIGNED)
    v_head = head_of(v_view, b, h // sizes.group, k0, ALIGNED)
    bits = mask.bits
    if BITS & MASK:
        bits = head_of(mask.bits, b, h, q0, False)
    head = head_terms(terms, b, h, q0, q_end, k_end)
    q = load_tile(q_head, i, q_end, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)  # [BLOCK_M, BLOCK_D]

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # [BLOCK_M], and so are l_i and alpha
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
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
                dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
                z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)  # [BLOCK_M, BLOCK_N]
                p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)  # p: [BLOCK_M, BLOCK_N]
                if dropout.keep_share is not None:
                    p = drop(p, keep_tile(i, n0, bh, dropout, BLOCK_N))
                if v_tiles is None:
                    v = load_tile(v_head, j, k_end, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]
                else:
                    v = fetch_tile(v_tiles, b, h // sizes.group, n0, BLOCK_N, BLOCK_DV)
                acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)  # [BLOCK_M, BLOCK_DV]

    if sequences.q_lengths is not None:  # a row past the length took part in the full tiles
        m_i = tl.where(i < q_end, m_i, float("-inf"))
        l_i = tl.where(i < q_end, l_i, 0.0)
        acc = tl.where((i < q_end)[:, None], acc, 0.0)
    if terms.sink is not None:
        m_i, l_i, alpha = take_sink(m_i, l_i, head_sink(terms.sink, h))
        acc = acc * alpha[:, None]
    divisor, lse2 = finish(m_i, l_i)
    if dropout.keep_share is not None:
        divisor = divisor * dropout.keep_share
    o_head = head_of(o_view, b, h, q0, ALIGNED)
    store_tile(o_head, acc / divisor[:, None], i, sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    tl.store(row_ptrs(stats.lse2, stats, b, h, q0, i), lse2, mask=i < sq)

import triton.language as tl

from flashverify_kernels.device.address import declared
from flashverify_kernels.device.arguments import MaskParts, PageTable, PartView, Sizes, View
from flashverify_kernels.device.decode import split_range
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.mask import LOWER, band_of, row_begin, visible
from flashverify_kernels.device.pages import CONTIGUOUS, load_rows, place_offsets, places, store_rows
from flashverify_kernels.device.schedule import FULL, KEYS, LEADING, TRAILING, segment, tile_schedule
from flashverify_kernels.device.softmax import finish, online_step


@kernel
def latent_kernel(
    q_view: View,
    kv_view: View,
    o_view: PartView,
    lse_ptr,
    scale_log2,
    lse_scale,
    k_lengths_ptr,
    pages: PageTable,
    batch: tl.int32,
    splits: tl.int32,
    rope8: tl.int32,
    sizes: Sizes,
    mask: MaskParts,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    BLOCK_R: tl.constexpr,
    EVEN_DV: tl.constexpr,
    EVEN_R: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASK: tl.constexpr,
    PAGED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute O and LSE over one split of the keys of a latent cache: one program per (batch, kv head, split, tile of packed rows).

    The tile of the latent channels is loaded once: it is a part of K, and it is V.

    Arguments, beyond those of `decode_kernel`:
        q_view: `[B, heads, sq, 8 (dv8 + rope8)]`: latent channels, then those of the rotary part.
        kv_view: `[B, kv_heads, sk, 8 (dv8 + rope8)]`, or `[pages, kv_heads, page_size, 8 (dv8 + rope8)]` with a page table.
        o_view: `[splits, B, heads, sq, 8 dv8]`, written.
        rope8: channels of the rotary part, divided by 8.
        BLOCK_DV: 8 dv8 rounded up to a power of two.
        BLOCK_R: 8 rope8 likewise; 0 without a rotary part.
        EVEN_DV: whether 8 dv8 is BLOCK_DV.
        EVEN_R: whether 8 rope8 is BLOCK_R.
    """
    row_tiles = tl.cdiv(sizes.group * sizes.sq, BLOCK_M)
    tile = tl.program_id(0) % row_tiles
    rest = tl.program_id(0) // row_tiles
    split = rest % splits
    hk = rest // splits % sizes.kv_heads
    b = rest // splits // sizes.kv_heads
    k_end = declared(k_lengths_ptr, b, sizes.sk)

    r = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    i = r // sizes.group
    h = hk * sizes.group + r % sizes.group
    q_offset = b.to(tl.int64) * q_view.batch + h.to(tl.int64) * q_view.head + i.to(tl.int64) * q_view.row
    q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_M, BLOCK_DV]
    kv_ptr = kv_view.ptr + hk.to(tl.int64) * kv_view.head
    table_ptr = pages.ptr
    if PAGED == CONTIGUOUS:
        kv_ptr += b.to(tl.int64) * kv_view.batch
    else:
        table_ptr += b.to(tl.int64) * pages.batch
    if ALIGNED:
        kv_ptr = tl.multiple_of(kv_ptr, 16)
    if BLOCK_R > 0:
        q_rope = load_rows(q_view.ptr + sizes.dv8 * 8, q_offset, i < sizes.sq, rope8, BLOCK_R, EVEN_R, ALIGNED)
        rope_ptr = kv_ptr + sizes.dv8 * 8

    band = band_of(b, sizes.sq, k_end, mask, MASK)
    first = tile * BLOCK_M // sizes.group
    last = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // sizes.group, sizes.sq - 1)
    limits = tile_schedule(first, last + 1, k_end, band, 0, BLOCK_M, BLOCK_N, MASK, KEYS)
    split_start, split_stop = split_range(limits[0], limits[3], split, splits, BLOCK_N)
    k_begin = row_begin(first, band, MASK)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for part in tl.static_range(LEADING if LOWER & MASK else FULL, TRAILING + 1):
        start, stop = segment(limits, part)
        for n0 in range(tl.maximum(start, split_start), tl.minimum(stop, split_stop), BLOCK_N):
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(i[:, None], j[None, :], sizes.sq, k_end, band, mask.bits, 0, MASK, part != FULL)
            keep = j < k_end
            if LOWER & MASK:  # the pages before every window may be gone
                keep = keep & (j >= k_begin)
            page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)
            offset = place_offsets(page, slot, kv_view.batch, kv_view.row, PAGED)
            kv = load_rows(kv_ptr, offset, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)  # [BLOCK_N, BLOCK_DV]
            dot = tl.dot(q, tl.trans(kv), input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
            if BLOCK_R > 0:
                k_rope = load_rows(rope_ptr, offset, keep, rope8, BLOCK_R, EVEN_R, ALIGNED)  # [BLOCK_N, BLOCK_R]
                dot = tl.dot(q_rope, tl.trans(k_rope), dot, input_precision=PRECISION)
            p, m_i, l_i, alpha = online_step(dot * scale_log2, see, m_i, l_i, part != FULL)
            acc = tl.dot(p.to(kv.dtype), kv, acc * alpha[:, None], input_precision=PRECISION)

    divisor, lse2 = finish(m_i, l_i)
    o_offset = split.to(tl.int64) * o_view.part + b.to(tl.int64) * o_view.batch
    o_offset += h.to(tl.int64) * o_view.head + i.to(tl.int64) * o_view.row
    store_rows(o_view.ptr, acc / divisor[:, None], o_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h
    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)

import triton
import triton.language as tl

from flashverify_kernels.device.address import declared
from flashverify_kernels.device.arguments import LogitTerms, MaskParts, PageTable, PartView, Sizes, View
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.logits import logits, terms_of_rows
from flashverify_kernels.device.mask import BITS, LOWER, band_of, row_begin, visible
from flashverify_kernels.device.pages import CONTIGUOUS, heads_of_rows, load_rows, place_offsets, places, store_rows
from flashverify_kernels.device.schedule import FULL, KEYS, LEADING, TRAILING, segment, tile_schedule
from flashverify_kernels.device.softmax import finish, online_step


@triton.jit
def split_range(begin, end, split, splits, BLOCK_N: tl.constexpr):
    """The keys of one split of [begin, end): whole tiles, as many as in any other split or one less; none if it is empty."""
    first = begin // BLOCK_N
    tiles = tl.maximum(tl.cdiv(end, BLOCK_N) - first, 0).to(tl.int64)
    low = first + (tiles * split // splits).to(tl.int32)
    high = first + (tiles * (split + 1) // splits).to(tl.int32)
    return low * BLOCK_N, tl.minimum(high * BLOCK_N, end)


@kernel
def decode_kernel(
    q_view: View,
    k_view: View,
    v_view: View,
    o_view: PartView,
    lse_ptr,
    lse_scale,
    q_lengths_ptr,
    k_lengths_ptr,
    pages: PageTable,
    batch: tl.int32,
    splits: tl.int32,
    sizes: Sizes,
    mask: MaskParts,
    terms: LogitTerms,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_D: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASK: tl.constexpr,
    PAGED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute O and LSE over one split of the keys: one program per (batch, kv head, split, tile of packed rows).

    Row r of a kv head is query r // group of its member r % group, so that the rows of a tile are neighbours in the mask.
    The split walks the part of the tile schedule that falls into it.

    Arguments, beyond those of `forward_kernel`:
        k_view: `[B, kv_heads, sk, 8 d8]`, or `[pages, kv_heads, page_size, 8 d8]` with a page table.
        v_view: likewise, with 8 dv8 channels.
        o_view: `[splits, B, heads, sq, 8 dv8]`, written.
        lse_ptr: `[splits, B, heads, sq]` fp32 contiguous, written: LSE, log base 2, times `lse_scale`.
        lse_scale: factor of the LSE.
        q_lengths_ptr: `[B]` int32 query lengths, or None.
        k_lengths_ptr: `[B]` int32 key lengths, or None.
        pages: the page table.
        batch: number of sequences.
        splits: parts that the keys of a sequence are split into.
        terms: what a logit is made of, without a sink, which is a part of its own.
        PAGED: how tiles of keys lie in pages, see `pages.places`.
    """
    row_tiles = tl.cdiv(sizes.group * sizes.sq, BLOCK_M)
    tile = tl.program_id(0) % row_tiles
    rest = tl.program_id(0) // row_tiles
    split = rest % splits
    hk = rest // splits % sizes.kv_heads
    b = rest // splits // sizes.kv_heads
    q_end = declared(q_lengths_ptr, b, sizes.sq)
    k_end = declared(k_lengths_ptr, b, sizes.sk)

    r = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    i = r // sizes.group
    h = hk.to(tl.int64) * sizes.group + r % sizes.group
    q_offset = b.to(tl.int64) * q_view.batch + h.to(tl.int64) * q_view.head + i.to(tl.int64) * q_view.row
    q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    k_ptr = k_view.ptr + hk.to(tl.int64) * k_view.head
    v_ptr = v_view.ptr + hk.to(tl.int64) * v_view.head
    table_ptr = pages.ptr
    if PAGED == CONTIGUOUS:
        k_ptr += b.to(tl.int64) * k_view.batch
        v_ptr += b.to(tl.int64) * v_view.batch
    else:
        table_ptr += b.to(tl.int64) * pages.batch
    if ALIGNED:
        k_ptr = tl.multiple_of(k_ptr, 16)
        v_ptr = tl.multiple_of(v_ptr, 16)

    bits = mask.bits
    if BITS & MASK:
        bits = heads_of_rows(mask.bits, b, h)

    head = terms_of_rows(terms, b, h, q_end, k_end)
    band = band_of(b, q_end, k_end, mask, MASK)
    bits_start = mask.tree * band.high
    first = tile * BLOCK_M // sizes.group
    last = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // sizes.group, q_end - 1)
    limits = tile_schedule(first, last + 1, k_end, band, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)
    split_start, split_stop = split_range(limits[0], limits[3], split, splits, BLOCK_N)
    k_begin = row_begin(first, band, MASK)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for part in tl.static_range(LEADING if LOWER & MASK else FULL, TRAILING + 1):
        start, stop = segment(limits, part)
        for n0 in range(tl.maximum(start, split_start), tl.minimum(stop, split_stop), BLOCK_N):
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(i[:, None], j[None, :], q_end, k_end, band, bits, bits_start, MASK, part != FULL)
            keep = j < k_end
            if LOWER & MASK:  # the pages before every window may be gone
                keep = keep & (j >= k_begin)
            page, slot = places(table_ptr, n0, j, keep, pages.size, PAGED)
            k_offset = place_offsets(page, slot, k_view.batch, k_view.row, PAGED)
            v_offset = place_offsets(page, slot, v_view.batch, v_view.row, PAGED)
            k = load_rows(k_ptr, k_offset, keep, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
            dot = tl.dot(q, tl.trans(k), input_precision=PRECISION)
            z = logits(dot, i[:, None], j[None, :], q_end, k_end, terms, head, part != FULL)
            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)
            v = load_rows(v_ptr, v_offset, keep, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)

    if q_lengths_ptr is not None:  # a row past the length took part in the full tiles
        m_i = tl.where(i < q_end, m_i, float("-inf"))
        l_i = tl.where(i < q_end, l_i, 0.0)
        acc = tl.where((i < q_end)[:, None], acc, 0.0)
    divisor, lse2 = finish(m_i, l_i)
    o_offset = split.to(tl.int64) * o_view.part + b.to(tl.int64) * o_view.batch
    o_offset += h.to(tl.int64) * o_view.head + i.to(tl.int64) * o_view.row
    store_rows(o_view.ptr, acc / divisor[:, None], o_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h
    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)

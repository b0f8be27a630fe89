import triton
import triton.language as tl

from flashverify_kernels.device.address import declared
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.mask import BITS, LOWER, band, row_begin, visible
from flashverify_kernels.device.pages import CONTIGUOUS, load_rows, place_offsets, places, store_rows
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
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    scale_log2,
    lse_scale,
    k_lengths_ptr,
    bits_ptr,
    table_ptr,
    batch: tl.int32,
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
    splits: tl.int32,
    page_size: tl.int32,
    stride_table: tl.int64,
    stride_qb: tl.int64,
    stride_qh: tl.int64,
    stride_qs: tl.int64,
    stride_kb: tl.int64,
    stride_kh: tl.int64,
    stride_ks: tl.int64,
    stride_vb: tl.int64,
    stride_vh: tl.int64,
    stride_vs: tl.int64,
    stride_op: tl.int64,
    stride_ob: tl.int64,
    stride_oh: tl.int64,
    stride_os: tl.int64,
    stride_bitsb: tl.int64,
    stride_bitsh: tl.int64,
    stride_bitss: tl.int64,
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
        k_ptr: `[B, kv_heads, sk, 8 d8]`, or `[pages, kv_heads, page_size, 8 d8]` with a page table.
        v_ptr: likewise, with 8 dv8 channels.
        o_ptr: `[splits, B, kv_heads * group, sq, 8 dv8]`, written.
        lse_ptr: `[splits, B, kv_heads * group, sq]` fp32 contiguous, written: LSE, log base 2, times `lse_scale`.
        bits_ptr: `[B or 1, heads or 1, sq, words]` int32: bit of key `bits_start` + n of each row, or None.
        table_ptr: `[B, pages of a sequence]` int32, last stride 1, or None.
        batch: number of sequences.
        kv_heads: number of kv heads.
        splits: parts that the keys of a sequence are split into.
        page_size: keys per page.
        stride_table: distance of two sequences in the page table.
        stride_op: distance of two splits; that of a batch of k and v is the distance of two pages.
        PAGED: how tiles of keys lie in pages, see `pages.places`.
    """
    row_tiles = tl.cdiv(group * sq, BLOCK_M)
    tile = tl.program_id(0) % row_tiles
    rest = tl.program_id(0) // row_tiles
    split = rest % splits
    hk = rest // splits % kv_heads
    b = rest // splits // kv_heads
    k_end = declared(k_lengths_ptr, b, sk)

    r = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    i = r // group
    h = hk * group + r % group
    q_offset = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + i.to(tl.int64) * stride_qs
    q = load_rows(q_ptr, q_offset, i < sq, d8, BLOCK_D, EVEN_D, ALIGNED)
    k_ptr += hk.to(tl.int64) * stride_kh
    v_ptr += hk.to(tl.int64) * stride_vh
    if PAGED == CONTIGUOUS:
        k_ptr += b.to(tl.int64) * stride_kb
        v_ptr += b.to(tl.int64) * stride_vb
    else:
        table_ptr += b.to(tl.int64) * stride_table
    if ALIGNED:
        k_ptr = tl.multiple_of(k_ptr, 16)
        v_ptr = tl.multiple_of(v_ptr, 16)

    if BITS & MASK:
        bits_ptr += (b.to(tl.int64) * stride_bitsb + h.to(tl.int64) * stride_bitsh)[:, None]

    low, high = band(sq, k_end, left, right, align_end)
    bits_start = tree * high
    first = tile * BLOCK_M // group
    last = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // group, sq - 1)
    limits = tile_schedule(first, last + 1, k_end, low, high, bits_start, BLOCK_M, BLOCK_N, MASK, KEYS)
    split_start, split_stop = split_range(limits[0], limits[3], split, splits, BLOCK_N)
    k_begin = row_begin(first, low, MASK)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for part in tl.static_range(LEADING if LOWER & MASK else FULL, TRAILING + 1):
        start, stop = segment(limits, part)
        for n0 in range(tl.maximum(start, split_start), tl.minimum(stop, split_stop), BLOCK_N):
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(
                i[:, None], j[None, :], sq, k_end, low, high, bits_ptr, stride_bitss, bits_start, MASK, part != FULL
            )
            keep = j < k_end
            if LOWER & MASK:  # the pages before every window may be gone
                keep = keep & (j >= k_begin)
            page, slot = places(table_ptr, n0, j, keep, page_size, PAGED)
            k_offset = place_offsets(page, slot, stride_kb, stride_ks, PAGED)
            v_offset = place_offsets(page, slot, stride_vb, stride_vs, PAGED)
            k = load_rows(k_ptr, k_offset, keep, d8, BLOCK_D, EVEN_D, ALIGNED)
            z = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)
            v = load_rows(v_ptr, v_offset, keep, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
            acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision=PRECISION)

    divisor, lse2 = finish(m_i, l_i)
    o_offset = split.to(tl.int64) * stride_op + b.to(tl.int64) * stride_ob
    o_offset += h.to(tl.int64) * stride_oh + i.to(tl.int64) * stride_os
    store_rows(o_ptr, acc / divisor[:, None], o_offset, i < sq, dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    lse_row = (split.to(tl.int64) * batch + b) * kv_heads * group + h
    tl.store(lse_ptr + lse_row * sq + i, lse2 * lse_scale, mask=i < sq)

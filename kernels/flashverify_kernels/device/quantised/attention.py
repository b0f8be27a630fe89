import triton
import triton.language as tl

from flashverify_kernels.device.address import declared
from flashverify_kernels.device.arguments import MaskParts, PartView, Sizes, View
from flashverify_kernels.device.decode import split_range
from flashverify_kernels.device.jit import kernel
from flashverify_kernels.device.mask import LOWER, band_of, row_begin, visible
from flashverify_kernels.device.pages import load_rows, store_rows
from flashverify_kernels.device.quantised.codes import (
    FP8_WEIGHTS,
    OPERAND,
    Codes,
    RowScales,
    common_scale,
    load_bytes,
    load_numbers,
    load_only_scale,
    load_scales,
    queries,
)
from flashverify_kernels.device.schedule import FULL, KEYS, LEADING, TRAILING, segment, tile_schedule
from flashverify_kernels.device.softmax import finish, online_step

WEIGHT_FACTOR = tl.constexpr(256.0)
"""Weights are multiplied by it before they are cast to e4m3, whose largest number is 448."""


@triton.jit
def logits(q, q_factor, k_only, k_codes, b, hk, j, keep, scale_log2, d8, BLOCK_D: tl.constexpr, EVEN: tl.constexpr,
           FORMAT: tl.constexpr, MODE: tl.constexpr, ONE_K: tl.constexpr, DTYPE: tl.constexpr, WORDS: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    """Base-2 logits of one tile of keys, `[BLOCK_M, BLOCK_N]` fp32; `q_factor` is what `queries` says of the rows."""
    k = load_numbers(k_codes, b, hk, j, keep, d8, BLOCK_D, EVEN, FORMAT, WORDS)
    k_scale = k_only
    if not ONE_K:
        k_scale = load_scales(k_codes, b, hk, j, keep)
    if MODE == OPERAND:
        k = (k * k_scale[:, None]).to(q.dtype)
        z = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale_log2
    else:
        z = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION) * (k_scale * scale_log2)[None, :]
        if DTYPE is not None:
            z = z * q_factor[:, None]
    return z


@triton.jit
def weighted(acc, p, v_codes, b, hk, j, keep, dv8, DTYPE: tl.constexpr, BLOCK_DV: tl.constexpr, EVEN: tl.constexpr,
             FORMAT: tl.constexpr, MODE: tl.constexpr, SCALE_LAST: tl.constexpr, WORDS: tl.constexpr,
             PRECISION: tl.constexpr):  # fmt: skip
    """The accumulator with the share of one tile of keys."""
    if MODE == FP8_WEIGHTS:
        x = load_bytes(v_codes, b, hk, j, keep, dv8, BLOCK_DV, EVEN, FORMAT, WORDS)
        acc += tl.dot((p * WEIGHT_FACTOR).to(tl.float8e4nv), x.to(tl.float8e4nv, bitcast=True))
    else:
        v = load_numbers(v_codes, b, hk, j, keep, dv8, BLOCK_DV, EVEN, FORMAT, WORDS)
        if MODE == OPERAND:
            v = v * load_scales(v_codes, b, hk, j, keep)[:, None]
        elif not SCALE_LAST:
            p = p * load_scales(v_codes, b, hk, j, keep)[None, :]
        acc = tl.dot(p.to(DTYPE), v.to(DTYPE), acc, input_precision=PRECISION)
    return acc


@triton.jit
def normalised(acc, l_i, divisor, v_codes, b, hk, k_end, MODE: tl.constexpr, SCALE_LAST: tl.constexpr):
    """The accumulator over the row sum, with the scale and the factor that the weights did not carry.

    A row without keys is 0 whatever it accumulated: an operand of V that leaves its format makes NaN of weight 0.
    """
    acc = acc / divisor[:, None]
    if MODE == FP8_WEIGHTS:
        acc = acc * (1.0 / WEIGHT_FACTOR)
    if SCALE_LAST:  # last: its product with what is not normalised yet may overflow
        acc = acc * load_only_scale(v_codes, b, hk, k_end > 0)
    return tl.where((l_i == 0.0)[:, None], 0.0, acc)


@kernel
def quantised_decode_kernel(
    q_view: View,
    q_scale: RowScales,
    k_codes: Codes,
    v_codes: Codes,
    o_view: PartView,
    lse_ptr,
    scale_log2,
    lse_scale,
    k_lengths_ptr,
    batch: tl.int32,
    splits: tl.int32,
    sizes: Sizes,
    mask: MaskParts,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_D: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASK: tl.constexpr,
    FORMAT: tl.constexpr,
    MODE: tl.constexpr,
    ONE_K: tl.constexpr,
    SCALE_LAST: tl.constexpr,
    DTYPE: tl.constexpr,
    WORDS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute O and LSE over one split of the keys: one program per (batch, kv head, split, tile of packed rows).

    Rows are packed as in `decode_kernel`.

    Arguments, beyond those of `decode_kernel`:
        k_codes: `[B, kv_heads, sk, 8 d8]`, or pages.
        v_codes: likewise, with 8 dv8 channels.
        FORMAT: of the codes.
        MODE: `OPERAND`: the product of code and scale, rounded to the type of q, is the operand. `FOLDED`: the code is, and the scale
            multiplies the logit, and the weight or the result. `FP8_WEIGHTS`: folded, and weights and codes of V are multiplied in fp8.
        ONE_K: one scale of K serves the head and multiplies the logit.
        SCALE_LAST: one scale of V serves the head and multiplies the result.
        q_scale: of a q in codes of the same format.
        DTYPE: of the operands where q is codes, else None.
        WORDS: whether every row of codes starts on 16 bytes.
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
    q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    q, q_factor = queries(q, q_scale, b, h, i, i < sizes.sq, FORMAT, MODE, DTYPE)
    k_only = common_scale(k_codes, b, hk, k_end > 0, ONE_K)

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
            if LOWER & MASK:
                keep = keep & (j >= k_begin)
            z = logits(q, q_factor, k_only, k_codes, b, hk, j, keep, scale_log2, sizes.d8, BLOCK_D, EVEN_D,
                       FORMAT, MODE, ONE_K, DTYPE, WORDS, PRECISION)  # fmt: skip
            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)
            acc = weighted(acc * alpha[:, None], p, v_codes, b, hk, j, keep, sizes.dv8, q.dtype, BLOCK_DV,
                           EVEN_DV, FORMAT, MODE, SCALE_LAST, WORDS, PRECISION)  # fmt: skip

    divisor, lse2 = finish(m_i, l_i)
    o = normalised(acc, l_i, divisor, v_codes, b, hk, k_end, MODE, SCALE_LAST)
    o_offset = split.to(tl.int64) * o_view.part + b.to(tl.int64) * o_view.batch
    o_offset += h.to(tl.int64) * o_view.head + i.to(tl.int64) * o_view.row
    store_rows(o_view.ptr, o, o_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    lse_row = (split.to(tl.int64) * batch + b) * sizes.heads + h
    tl.store(lse_ptr + lse_row * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)


@kernel
def quantised_forward_kernel(
    q_view: View,
    q_scale: RowScales,
    k_codes: Codes,
    v_codes: Codes,
    o_view: View,
    lse_ptr,
    scale_log2,
    lse_scale,
    k_lengths_ptr,
    sizes: Sizes,
    mask: MaskParts,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    EVEN_D: tl.constexpr,
    EVEN_DV: tl.constexpr,
    ALIGNED: tl.constexpr,
    MASK: tl.constexpr,
    FORMAT: tl.constexpr,
    MODE: tl.constexpr,
    ONE_K: tl.constexpr,
    SCALE_LAST: tl.constexpr,
    DTYPE: tl.constexpr,
    WORDS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Compute O and LSE of one tile of rows of one query head, over all keys: one program per (batch, head, tile of rows).

    Arguments as in `quantised_decode_kernel`; o_view is `[B, heads, sq, 8 dv8]`, lse_ptr `[B, heads, sq]`.
    """
    row_tiles = tl.cdiv(sizes.sq, BLOCK_M)
    tile = tl.program_id(0) % row_tiles
    h = tl.program_id(0) // row_tiles % sizes.heads
    b = tl.program_id(0) // row_tiles // sizes.heads
    hk = h // sizes.group
    k_end = declared(k_lengths_ptr, b, sizes.sk)

    m0 = tile * BLOCK_M
    i = m0 + tl.arange(0, BLOCK_M)
    q_offset = b.to(tl.int64) * q_view.batch + h.to(tl.int64) * q_view.head + i.to(tl.int64) * q_view.row
    q = load_rows(q_view.ptr, q_offset, i < sizes.sq, sizes.d8, BLOCK_D, EVEN_D, ALIGNED)
    q, q_factor = queries(q, q_scale, b, h, i, i < sizes.sq, FORMAT, MODE, DTYPE)
    k_only = common_scale(k_codes, b, hk, k_end > 0, ONE_K)

    band = band_of(b, sizes.sq, k_end, mask, MASK)
    limits = tile_schedule(m0, tl.minimum(m0 + BLOCK_M, sizes.sq), k_end, band, 0, BLOCK_M, BLOCK_N, MASK, KEYS)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, BLOCK_DV], 0.0, tl.float32)
    for part in tl.static_range(LEADING if LOWER & MASK else FULL, TRAILING + 1):
        start, stop = segment(limits, part)
        for n0 in range(start, stop, BLOCK_N):
            j = n0 + tl.arange(0, BLOCK_N)
            see = visible(i[:, None], j[None, :], sizes.sq, k_end, band, mask.bits, 0, MASK, part != FULL)
            keep = j < k_end
            z = logits(q, q_factor, k_only, k_codes, b, hk, j, keep, scale_log2, sizes.d8, BLOCK_D, EVEN_D,
                       FORMAT, MODE, ONE_K, DTYPE, WORDS, PRECISION)  # fmt: skip
            p, m_i, l_i, alpha = online_step(z, see, m_i, l_i, part != FULL)
            acc = weighted(acc * alpha[:, None], p, v_codes, b, hk, j, keep, sizes.dv8, q.dtype, BLOCK_DV,
                           EVEN_DV, FORMAT, MODE, SCALE_LAST, WORDS, PRECISION)  # fmt: skip

    divisor, lse2 = finish(m_i, l_i)
    o = normalised(acc, l_i, divisor, v_codes, b, hk, k_end, MODE, SCALE_LAST)
    o_offset = b.to(tl.int64) * o_view.batch + h.to(tl.int64) * o_view.head + i.to(tl.int64) * o_view.row
    store_rows(o_view.ptr, o, o_offset, i < sizes.sq, sizes.dv8, BLOCK_DV, EVEN_DV, ALIGNED)
    tl.store(lse_ptr + (b.to(tl.int64) * sizes.heads + h) * sizes.sq + i, lse2 * lse_scale, mask=i < sizes.sq)

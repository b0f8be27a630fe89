"""The tile schedule: which tiles are skipped, which need the mask, which are fully visible.

For one tile along an axis, the tiles along the other axis are visited in ascending order in three segments:

    begin --LEADING-- full_begin --FULL-- full_end --TRAILING-- end

Tiles outside [begin, end) are skipped; tiles in `FULL` are visible in every pair, the others are masked.
"""

import triton
import triton.language as tl

from flashverify_kernels.device.mask import first_row, first_sure_row, row_end, sure_end

LEADING = tl.constexpr(0)
FULL = tl.constexpr(1)
TRAILING = tl.constexpr(2)

KEYS = tl.constexpr(0)
QUERIES = tl.constexpr(1)


@triton.jit
def tile_schedule(
    start,
    sq,
    k_end,
    diag,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASK: tl.constexpr,
    AXIS: tl.constexpr,
):
    """The limits `(begin, full_begin, full_end, end)` of the segments along `AXIS`.

    Args:
        start: first query (`AXIS` = `KEYS`) or first key (`AXIS` = `QUERIES`) of the tile that stays fixed.
        sq: number of queries.
        k_end: number of keys.
        diag: shift of the diagonal, see `mask`.
        BLOCK_M: queries per tile.
        BLOCK_N: keys per tile.
        MASK: kind of mask.
        AXIS: the axis that is walked.
    """
    if AXIS == KEYS:
        last = tl.minimum(start + BLOCK_M, sq) - 1
        begin = start * 0
        full_begin = begin
        full_end = tl.maximum(sure_end(start, sq, k_end, diag, MASK), 0) // BLOCK_N * BLOCK_N
        end = row_end(last, sq, k_end, diag, MASK)
    else:
        end = sq
        begin = first_row(start, sq, k_end, diag, MASK)
        begin = tl.where(begin < end, begin // BLOCK_M * BLOCK_M, end)
        sure = tl.cdiv(first_sure_row(start + BLOCK_N - 1, sq, k_end, diag, MASK), BLOCK_M) * BLOCK_M
        whole = sq // BLOCK_M * BLOCK_M
        full_begin = tl.where(sure < whole, sure, begin)
        full_end = tl.where(sure < whole, whole, begin)
    return begin, full_begin, full_end, end


@triton.jit
def segment(begin, full_begin, full_end, end, SEGMENT: tl.constexpr):
    """The limits of one segment of a schedule."""
    if SEGMENT == LEADING:
        low = begin
        high = full_begin
    elif SEGMENT == FULL:
        low = full_begin
        high = full_end
    else:
        low = full_end
        high = end
    return low, high
